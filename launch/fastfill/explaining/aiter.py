"""What is known of the aiter that a server will import: from a folder, or from the name of a commit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fastfill.explaining import releases
from fastfill.kernels import installation
from fastfill.kernels.judge import judge
from fastfill.kernels.revisions import BY_ID

KernelState = Literal["present", "missing", "broken", "unknown"]


@dataclass(frozen=True, slots=True)
class Aiter:
    """The installed kernel.

    Attributes:
        kernel: Its state.
        detail: The value that decided it.
        paged: Whether the kernel that reads the paged cache (#4971) is there; None if unknown.
        source: Where that was read.
    """

    kernel: KernelState
    detail: str
    paged: bool | None
    source: str


UNKNOWN = Aiter("unknown", "no aiter was named", None, "give --aiter DIR or COMMIT")


def of(given: str) -> Aiter:
    """A checkout or site-packages folder if there is one of that name, else a commit or tag; "" is unknown."""
    if not given:
        return UNKNOWN
    return _of_folder(Path(given)) if Path(given).exists() or "/" in given else _of_commit(given)


def _of_folder(path: Path) -> Aiter:
    found = installation.read(path)
    identity = judge(found)
    source = f"read in {path}"
    failed = [finding for finding in identity.findings if finding.status == "fail"]
    if identity.broken:
        return Aiter("broken", f"revision {identity.revision}", None, source)
    if identity.missing:
        return Aiter("missing", failed[0].value, None, source)
    known = identity.revision in BY_ID
    # The four known revisions are older than the paged kernel; what an unknown one holds, its files do not tell.
    return Aiter("present", f"revision {identity.revision}", False if known else None, source)


def _of_commit(name: str) -> Aiter:
    commit = releases.aiter(name)
    if commit.revision == "unknown":
        return Aiter("unknown", commit.source, None, "give --aiter DIR, which reads the files themselves")
    if commit.revision == "none":
        return Aiter("missing", f"aiter {name} is older than the kernel", commit.paged, commit.source)
    broken = bool(commit.revision in BY_ID and BY_ID[commit.revision].broken)
    detail = f"aiter {name}: revision {commit.revision}"
    return Aiter("broken" if broken else "present", detail, commit.paged, commit.source)
