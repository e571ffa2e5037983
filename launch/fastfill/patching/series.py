"""A series folder: ``series`` (the order), ``*.patch`` (DEP-3 header and diff), ``sources.toml`` (accepted hashes)."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from unidiff.errors import UnidiffParseError
from unidiff.patch import PatchedFile, PatchSet

from fastfill import data
from fastfill.errors import FastfillError, UsageError
from fastfill.patching.header import Header, read_header
from fastfill.patching.sources import Sources, read_sources

_PREFIX = "sglang-"
_UNIFIED = "write it with diff -u, or git diff, in UTF-8"


class Patch(NamedTuple):
    """One patch of a series.

    Attributes:
        name: Its file name.
        sha256: The hash of the whole patch file.
        header: Its DEP-3 header.
        files: The hunks by file; a path is relative to the folder that holds the package (``sglang/srt/...``).
    """

    name: str
    sha256: str
    header: Header
    files: dict[str, PatchedFile]


class Series(NamedTuple):
    """A whole series.

    Attributes:
        folder: Where it was read from.
        sources: The version it is for and the hashes of the files it may be applied to.
        patches: In the order of the ``series`` file.
    """

    folder: Path
    sources: Sources
    patches: list[Patch]

    def paths(self) -> list[str]:
        """Every file the series touches, sorted."""
        return sorted({path for patch in self.patches for path in patch.files})


def available() -> list[str]:
    """The SGLang versions that a series ships for."""
    folders = data.patches().glob(f"{_PREFIX}*/series")
    return sorted(folder.parent.name.removeprefix(_PREFIX) for folder in folders)


def folder_for(version: str) -> Path | None:
    """The shipped series for an SGLang version (a local suffix such as ``+rocm720`` is ignored), None for none."""
    folder = data.patches() / f"{_PREFIX}{public_version(version)}"
    return folder if (folder / "series").is_file() else None


def public_version(version: str) -> str:
    """The version without its local part."""
    return version.split("+", 1)[0]


def read_series(folder: Path) -> Series:
    """Read and validate a series.

    Raises:
        UsageError: There is no series in the folder, or it is not well formed.
    """
    listing = folder / "series"
    if not listing.is_file():
        raise UsageError(
            "there is no patch series here",
            where=str(listing),
            next_step="give a folder that holds a file named series, or leave --series out to use the shipped one",
        )
    names = [line.split("#", 1)[0].strip() for line in listing.read_text(encoding="utf-8").splitlines()]
    patches = [_read_patch(folder / name) for name in names if name]
    if not patches:
        raise UsageError("the series lists no patch", where=str(listing), next_step="name one patch file a line")
    series = Series(folder, read_sources(folder / "sources.toml"), patches)
    unlisted = [path for path in series.paths() if path not in series.sources.files]
    if unlisted:
        raise UsageError(
            "the series touches a file for which no source hash is listed",
            where=f"{folder / 'sources.toml'}: {', '.join(unlisted)}",
            next_step='add the SHA-256 of each unpatched file under [[files."PATH"]]',
        )
    return series


def _read_patch(path: Path) -> Patch:
    try:
        content = path.read_bytes()
        text = content.decode("utf-8")
    except FileNotFoundError:
        raise UsageError(
            "the series names a patch that does not exist", where=str(path), next_step="correct the file series"
        ) from None
    except UnicodeDecodeError as error:
        raise UsageError(f"the patch is not UTF-8 ({error})", where=str(path), next_step=_UNIFIED) from None
    header = read_header(text, path)
    try:
        parsed = PatchSet.from_string(text)
    except UnidiffParseError as error:
        raise UsageError(f"the patch cannot be parsed: {error}", where=str(path), next_step=_UNIFIED) from None
    files: dict[str, PatchedFile] = {}
    for patched in parsed:
        relative = _relative(patched.path, path)
        if patched.is_added_file or patched.is_removed_file or patched.is_rename or not len(patched):
            raise UsageError(
                "a patch may only change files, not add, remove or rename them",
                where=f"{path}: {patched.path}",
                next_step="put what is new into sglang_fastfill, and leave this file out of the patch",
            )
        if relative in files:
            raise UsageError(
                "a patch names the same file twice", where=f"{path}: {relative}", next_step="join its hunks"
            )
        files[relative] = patched
    if not files:
        raise UsageError("the patch holds no diff", where=str(path), next_step=_UNIFIED)
    return Patch(path.name, hashlib.sha256(content).hexdigest(), header, files)


def _relative(name: str, patch: Path) -> str:
    # A diff made in SGLang's repository says python/sglang/..., one made in site-packages says sglang/...
    relative = PurePosixPath(re.sub(r"^python/(?=sglang/)", "", name))
    if relative.is_absolute() or ".." in relative.parts or relative.parts[0] != "sglang":
        raise UsageError(
            "a patch may only touch files inside the sglang package",
            where=f"{patch}: {name}",
            next_step="make it relative to site-packages (sglang/...) or to SGLang's repository (python/sglang/...)",
        )
    return str(relative)


def choose(series: Path | None, version: str | None, where: str) -> Series:
    """The series given, or the shipped one for the version found.

    Raises:
        FastfillError: The series is for another version, or none ships for the version found.
    """
    shipped = ", ".join(available()) or "none"
    if series is None and version is None:
        raise FastfillError(
            "the version of this SGLang is not known (no _version.py and no dist-info)",
            where=where,
            next_step=f"name the series with --series DIR; shipped: {shipped}",
        )
    folder = series if series is not None else folder_for(str(version))
    if folder is None:
        raise FastfillError(
            f"this is SGLang {version}, for which there is no patch series",
            where=where,
            next_step=f"install one of the versions with a series: {shipped}",
        )
    chosen = read_series(folder)
    if version is not None and public_version(version) != chosen.sources.version:
        raise FastfillError(
            f"this is SGLang {version}; the series is for {chosen.sources.version}",
            where=where,
            next_step=f"install sglang=={chosen.sources.version}, or use another series; shipped: {shipped}",
        )
    return chosen
