"""The table of SGLang releases, our stacks and aiter's commits, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from fastfill.errors import UsageError
from fastfill.explaining.tables import table

Path = Literal["none", "builtin", "patched", "unknown"]


@dataclass(frozen=True, slots=True)
class Release:
    """What one SGLang does with an fp8 head-dim-256 prefill; the fields are explained in releases.toml."""

    name: str
    sglang: str
    path: Path
    gqa_guard: bool = True
    prefix: Literal["leaves", "gathers"] = "leaves"
    paged: bool = False
    scales: bool = False
    size_guard: bool = False
    scale_names: tuple[str, ...] = ()
    aiter: str = ""
    trouble: tuple[str, ...] = ()
    source: str = ""


@dataclass(frozen=True, slots=True)
class AiterCommit:
    """What an aiter commit holds: revision A to D, ``newer``, ``none``, or ``unknown``; the paged kernel, if known."""

    name: str
    revision: str
    paged: bool | None
    source: str


def release(version: str) -> Release:
    """A release of SGLang as PyPI has it; one that is not in the table has an unknown path."""
    entry = table("releases")["release"].get(version.removeprefix("v"))
    if entry is None:
        return Release(version, version, "unknown", source=f"SGLang {version} is not in the table of releases")
    return _release(version.removeprefix("v"), {"sglang": version.removeprefix("v"), **entry})


def stack(name: str) -> Release:
    """One of our stacks.

    Raises:
        UsageError: There is no such stack.
    """
    stacks = table("releases")["stack"]
    if name not in stacks:
        raise UsageError("there is no such stack", where=name, next_step=f"one of: {', '.join(stacks)}")
    return _stack(name, stacks[name])


def stacks() -> list[str]:
    """The names of our stacks, the default first."""
    return list(table("releases")["stack"])


def patched(version: str) -> Release:
    """The release as our series for it makes it; unknown where there is no series."""
    for name, entry in table("releases")["stack"].items():
        found = _stack(name, entry)
        if found.sglang == version:
            return found
    return Release(version, version, "unknown", source=f"no stack of ours patches SGLang {version}")


def aiter(name: str) -> AiterCommit:
    """A commit (seven digits or more) or tag of aiter."""
    for entry in table("releases")["aiter"]:
        for known in entry["names"]:
            if name == known or (len(name) >= 7 and _is_hex(name) and _is_hex(known) and _same(name, known)):
                return AiterCommit(name, entry["revision"], entry["paged"], entry["source"])
    return AiterCommit(name, "unknown", None, f"aiter {name} is not in the table of commits")


def default_chunk(gpu_memory_mib: int) -> tuple[int, str]:
    """The chunk that SGLang chooses by itself, in tokens, and where that is written."""
    size = next(row["size"] for row in table("releases")["chunk"] if gpu_memory_mib < row["below"])
    return int(size), "0.5.16 server_args.py:3925-3985"


def _stack(name: str, entry: dict[str, Any]) -> Release:
    """A stack of ours: the versions are those that its file pins."""
    from fastfill.pinning.stack import load

    pins = load(name)
    return _release(name, {"sglang": pins.sglang.version, "aiter": pins.aiter.commit, **entry})


def _release(name: str, entry: dict[str, Any]) -> Release:
    lists = {key: tuple(value) for key, value in entry.items() if isinstance(value, list)}
    return Release(name=name, **{**entry, **lists})


def _is_hex(text: str) -> bool:
    return all(letter in "0123456789abcdef" for letter in text)


def _same(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)
