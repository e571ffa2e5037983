"""Find the SGLang that is really imported, and its version, without importing it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from fastfill.errors import FastfillError, NotReadyError, UsageError

_QUERY = """
import importlib.metadata, importlib.util, json
spec = importlib.util.find_spec("sglang")
try:
    version = importlib.metadata.version("sglang")
except importlib.metadata.PackageNotFoundError:
    version = None
print("fastfill:" + json.dumps({
    "origin": spec.origin if spec else None,
    "folders": list(spec.submodule_search_locations or []) if spec else [],
    "version": version,
}))
"""
_VERSION = re.compile(r"""^__version__\s*=\s*(?:version\s*=\s*)?['"]([^'"]+)['"]""", re.MULTILINE)
BUILT_IN_NAME = b"flash_attn_varlen_fp8_pertensor_func"
BACKEND = "sglang/srt/layers/attention/aiter_backend.py"
OUR_PACKAGE = b"sglang_fastfill"
_WHICH = "give the interpreter that runs the server (--python), or its site-packages (--target)"


class Installation(NamedTuple):
    """One installed SGLang.

    Attributes:
        root: The folder that holds the package: ``root / "sglang/srt"`` exists.
        version: Its version, None when nothing says.
        asked: What found it, for messages.
    """

    root: Path
    version: str | None
    asked: str

    @property
    def package(self) -> Path:
        """The ``sglang`` folder."""
        return self.root / "sglang"

    def read(self, relative: str) -> bytes | None:
        """The bytes of one file, None when it is missing."""
        try:
            return (self.root / relative).read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None

    def has_built_in_path(self) -> bool:
        """Whether the backend calls the fp8 kernel itself, as SGLang does from 0.5.17 on."""
        source = self.read(BACKEND) or b""
        return BUILT_IN_NAME in source and OUR_PACKAGE not in source


def locate(target: Path | None, python: Path | None = None) -> Installation:
    """Find SGLang.

    Args:
        target: A site-packages folder, the package folder, a checkout of SGLang, a virtual environment, or an
            interpreter; None asks ``python``, or the current interpreter.
        python: An interpreter to ask; used only when ``target`` is None.

    Raises:
        UsageError: The target does not exist or holds no SGLang.
        NotReadyError: The interpreter cannot be run, or cannot find SGLang.
    """
    if target is None:
        return _ask(python or Path(sys.executable))
    if python is not None:
        raise UsageError(
            "--target and --python both say where SGLang is", where="--target, --python", next_step="give one of them"
        )
    if not target.exists():
        raise UsageError(
            "the target does not exist",
            where=str(target),
            next_step="give the folder that holds the sglang package, or an interpreter that imports it",
        )
    if target.is_file():
        return _ask(target)
    for root in (target, target / "python"):
        if _is_package(root / "sglang"):
            return Installation(root, read_version(root), str(target))
    if _is_package(target) and target.resolve().name == "sglang":
        root = target.resolve().parent
        return Installation(root, read_version(root), str(target))
    if (target / "bin" / "python").exists():
        return _ask(target / "bin" / "python")
    raise UsageError(
        "there is no SGLang here",
        where=str(target),
        next_step="give a site-packages folder, the sglang package folder, a virtual environment or an interpreter",
    )


def _is_package(folder: Path) -> bool:
    return (folder / "__init__.py").is_file() and (folder / "srt").is_dir()


def read_version(root: Path) -> str | None:
    """The version that the files beside or inside the package state."""
    for dist_info in sorted(root.glob("sglang-*.dist-info")):
        return dist_info.name.removeprefix("sglang-").removesuffix(".dist-info")
    try:
        match = _VERSION.search((root / "sglang" / "_version.py").read_text(encoding="utf-8"))
    except OSError:
        return None
    return match.group(1) if match else None


def _ask(python: Path) -> Installation:
    # The root folder as the working folder: `-c` puts the working folder on the path, and a folder named sglang there
    # would hide the installed package.
    try:
        answer = subprocess.run(
            [str(python.absolute()), "-c", _QUERY], cwd="/", capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotReadyError(f"the interpreter cannot be run: {error}", where=str(python), next_step=_WHICH) from None
    marked = [line for line in answer.stdout.splitlines() if line.startswith("fastfill:")]
    if answer.returncode != 0 or not marked:
        raise NotReadyError(
            "the interpreter did not say where SGLang is",
            where=str(python),
            detail=answer.stderr[-2000:],
            next_step=_WHICH,
        )
    found = json.loads(marked[-1].removeprefix("fastfill:"))
    if found["origin"] is None:
        shadow = ", ".join(found["folders"])
        raise NotReadyError(
            f"a folder without __init__.py hides SGLang: {shadow}" if shadow else "this interpreter has no SGLang",
            where=str(python),
            next_step=_WHICH,
        )
    root = Path(found["origin"]).parent.parent
    if not _is_package(root / "sglang"):
        raise FastfillError(
            "what this interpreter imports as sglang is not SGLang", where=str(found["origin"]), next_step=_WHICH
        )
    return Installation(root, found["version"] or read_version(root), str(python))
