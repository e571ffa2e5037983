"""What the interpreter that will serve has installed, found without importing any of it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from pathlib import Path

from fastfill.errors import NotReadyError
from fastfill.patching.target import BACKEND, BUILT_IN_NAME, OUR_PACKAGE
from fastfill.serving.checks import Installed
from fastfill.serving.settings import Settings
from sglang_fastfill.conditions import FLAG


def look() -> Installed:
    """The version of SGLang, and whether aiter's kernel folder holds a paged head-dim-256 file."""
    try:
        version = importlib.metadata.version("sglang")
    except importlib.metadata.PackageNotFoundError:
        version = None
    return Installed(version, _paged_kernel())


def _paged_kernel() -> bool | None:
    for package, up in (("aiter_meta", 0), ("aiter", 1)):
        spec = importlib.util.find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            continue
        folder = Path(next(iter(spec.submodule_search_locations)))
        kernels = (folder.parent if up else folder) / "hsa" / "gfx950"
        if kernels.is_dir():
            return any("hd256" in path.name and "page" in path.name for path in kernels.glob("fmha*/*.co"))
    return None


def require_patched(settings: Settings, allowed: list[str]) -> None:
    """Refuse to start a server that the flag cannot change.

    Raises:
        NotReadyError: There is no SGLang here, or the flag is set and its backend neither calls us nor has the path.
    """
    spec = importlib.util.find_spec("sglang")
    if spec is None or spec.origin is None:
        raise NotReadyError(
            "this interpreter has no SGLang",
            where=sys.executable,
            next_step="run fastfill with the interpreter that has it: PYTHON -m fastfill serve ...",
        )
    backend = Path(spec.origin).parent.parent / BACKEND
    try:
        source = backend.read_bytes()
    except OSError:
        source = b""
    if settings.env_on(FLAG) and OUR_PACKAGE not in source and BUILT_IN_NAME not in source:
        if {"patch_missing", "all"} & set(allowed):
            return
        raise NotReadyError(
            "the flag is set, but this SGLang is not patched: the path cannot fire",
            where=str(backend),
            next_step="fastfill patch apply, use profile off, or start all the same with --allow patch_missing",
        )
