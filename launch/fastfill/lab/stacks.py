"""The stacks that the lab can run: which SGLang, from which locks, on which Python."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

from fastfill import data
from fastfill.errors import UsageError


class Stack(NamedTuple):
    """One stack.

    Attributes:
        name: As in ``--stack``.
        sglang: SGLang's version; its patch series is ``patches/sglang-<version>``.
        python: The CPython minor version that the locks were made for.
        torch_lock: torch's CPU build, apart because it may come from another index.
        lock: Everything else.
        patched: Whether SGLang is patched with the series.
    """

    name: str
    sglang: str
    python: str
    torch_lock: Path
    lock: Path
    patched: bool

    def environment_name(self) -> str:
        """The name of the environment's folder: it changes with the locks."""
        digest = hashlib.sha256()
        for file in (self.torch_lock, self.lock):
            digest.update(file.read_bytes())
        return f"{self.name}-{digest.hexdigest()[:12]}"

    def series(self) -> Path:
        """The folder of the patch series."""
        return data.patches() / f"sglang-{self.sglang}"


def names() -> list[str]:
    """The stacks there are."""
    return ["sglang-0.5.16"]


def find(name: str) -> Stack:
    """The stack of this name.

    Raises:
        UsageError: There is none.
    """
    if name not in names():
        raise UsageError(f"there is no stack {name}", where="--stack", next_step=f"use one of: {', '.join(names())}")
    locks = data.requirements()
    return Stack(
        name=name,
        sglang=name.removeprefix("sglang-"),
        python="3.11",
        torch_lock=locks / "lab-torch.txt",
        lock=locks / "lab.txt",
        patched=True,
    )
