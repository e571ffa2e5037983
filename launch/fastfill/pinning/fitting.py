"""Makes and keeps the result of :mod:`fastfill.pinning.fit`, from an unpacked SGLang and a clone of aiter."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
import tempfile
from pathlib import Path

from fastfill.errors import NotReadyError, UsageError
from fastfill.pinning import fit
from fastfill.pinning import stack as stacks
from fastfill.pinning.fit import FitDocument, Name
from sglang_fastfill.witness import DISPATCH_POINTS, FUNCTIONS


def path_of(stack: str) -> Path:
    """Where the result is kept: beside the stack file."""
    return stacks.path_of(stack).with_suffix(".fit.json")


def judge(stack: str, sglang: Path, aiter: Path) -> FitDocument:
    """Compare SGLang's source with the pinned commit of aiter.

    Raises:
        UsageError: There is no SGLang of the pinned version at ``sglang``.
        NotReadyError: The clone does not have the commit.
    """
    from fastfill.patching.target import read_version

    chosen = stacks.load(stack)
    version = read_version(sglang)
    if version is None or version.split("+")[0] != chosen.sglang.version:
        raise UsageError(
            f"this is SGLang {version or 'of no version'}; the stack pins {chosen.sglang.version}",
            where=str(sglang),
            next_step=f"unpack the wheel of {chosen.sglang.version} and give its folder, or another --stack",
        )
    with tempfile.TemporaryDirectory() as folder:
        _unpack(aiter, chosen.aiter.commit, Path(folder))
        names = fit.check(sglang, Path(folder), [*FUNCTIONS, *DISPATCH_POINTS])
    return FitDocument(stack=chosen.name, sglang=chosen.sglang.version, aiter=chosen.aiter.commit, names=names)


def text(document: FitDocument) -> str:
    """The file's content."""
    return json.dumps(document.model_dump(mode="json", by_alias=True), indent=1) + "\n"


def problems(document: FitDocument) -> list[Name]:
    """The names that break SGLang where they are reached, but those that the stack lists with a reason."""
    known = stacks.load(document.stack).misfits
    return [name for name in fit.problems(document.names) if name.name not in known]


def _unpack(clone: Path, commit: str, place: Path) -> None:
    argv = ["git", "-C", str(clone), "archive", "--format=tar", commit, "aiter"]
    answer = subprocess.run(argv, capture_output=True, check=False)
    if answer.returncode != 0:
        raise NotReadyError(
            "the clone does not have the pinned commit",
            where=f"{clone}: {commit}",
            detail=answer.stderr.decode(errors="replace").strip(),
            next_step=f"git -C {clone} fetch origin {commit}",
        )
    with tarfile.open(fileobj=io.BytesIO(answer.stdout)) as archive:
        sources = [member for member in archive if member.name.endswith(".py")]
        archive.extractall(place, members=sources)  # noqa: S202 - git made it
