"""The stacks that the lab can run: which SGLang, from which locks, on which Python, patched or as its wheel has it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

from fastfill import data
from fastfill.errors import UsageError

DEFAULT = "sglang-0.5.16"
RELEASES = ("0.5.16", "0.5.17", "0.5.19", "0.5.20", "0.5.22", "0.5.23")
"""SGLang's releases that the lab runs. The first one's environment is whole; the others lie on it."""
UNPATCHED = "-unpatched"


class Stack(NamedTuple):
    """One stack.

    Attributes:
        name: As in ``--stack``.
        sglang: SGLang's version; its patch series is ``patches/sglang-<version>``.
        python: The CPython minor version that the locks were made for.
        torch_lock: torch's CPU build, apart because it may come from another index.
        lock: Everything else; for a stack that lies on another, what differs from it.
        patched: Whether SGLang is patched with the series.
        over: The stack on whose environment this one lies.
    """

    name: str
    sglang: str
    python: str
    torch_lock: Path
    lock: Path
    patched: bool
    over: Stack | None = None

    def environment_name(self) -> str:
        """The name of the environment's folder: it changes with the locks. Patched and unpatched share one."""
        digest = hashlib.sha256()
        for file in (self.torch_lock, *([self.over.lock] if self.over else []), self.lock):
            digest.update(file.read_bytes())
        return f"{self.name.removesuffix(UNPATCHED)}-{digest.hexdigest()[:12]}"

    def series(self) -> Path:
        """The folder of the patch series, which may not exist."""
        return series_of(self.sglang)


def series_of(version: str) -> Path:
    """Where the patch series of a release is, or would be."""
    return data.patches() / f"sglang-{version}"


def has_series(version: str) -> bool:
    """Whether there is a patch series for a release."""
    return (series_of(version) / "series").is_file()


def names() -> list[str]:
    """The stacks there are: a release that has a patch series is patched, and beside it there is its wheel as it is."""
    found = []
    for version in RELEASES:
        found.append(f"sglang-{version}")
        if has_series(version):
            found.append(f"sglang-{version}{UNPATCHED}")
    return found


def find(name: str) -> Stack:
    """The stack of this name. ``<name>-unpatched`` is the release's wheel as it is, whether or not there is a series.

    Raises:
        UsageError: There is none.
    """
    version = name.removeprefix("sglang-").removesuffix(UNPATCHED)
    if version not in RELEASES or not name.startswith("sglang-"):
        raise UsageError(f"there is no stack {name}", where="--stack", next_step=f"use one of: {', '.join(names())}")
    locks = data.requirements()
    first = version == RELEASES[0]
    return Stack(
        name=name,
        sglang=version,
        python="3.11",
        torch_lock=locks / "lab-torch.txt",
        lock=locks / ("lab.txt" if first else f"lab-{version}.txt"),
        patched=has_series(version) and not name.endswith(UNPATCHED),
        over=None if first else find(DEFAULT),
    )
