"""Whether a downloaded checkpoint is what the hub gave: hashed whole once, then compared by size, time and inode.

huggingface_hub leaves beside each file the commit and the etag that the hub named for it: SHA-256 of a large file,
git's SHA-1 of a small one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from fastfill.errors import NotReadyError, UsageError

STAMP = "fastfill-model.json"
_CLIENT = Path(".cache/huggingface/download")
_BLOCK = 1 << 22


class Named(NamedTuple):
    """What the hub said of one file."""

    commit: str
    etag: str


class Verified(NamedTuple):
    """The result.

    Attributes:
        files: How many were looked at.
        hashed: How many of them were read whole.
        problems: One line each.
    """

    files: int
    hashed: int
    problems: tuple[str, ...]


def named(folder: Path) -> dict[str, Named]:
    """What the hub said of every file that was fetched into ``folder``.

    Raises:
        UsageError: Nothing was fetched into it.
    """
    records = sorted((folder / _CLIENT).rglob("*.metadata"))
    found = {}
    for record in records:
        lines = record.read_text(encoding="utf-8").splitlines()
        name = str(record.relative_to(folder / _CLIENT)).removesuffix(".metadata")
        found[name] = Named(lines[0].strip(), lines[1].strip()) if len(lines) > 1 else Named("", "")
    if not found:
        raise UsageError(
            "this folder was not filled by fastfill model fetch",
            where=str(folder),
            next_step=f"fastfill model fetch --into {folder}; what is there already is hashed, not fetched again",
        )
    return found


def digest(file: Path, etag: str, tell: Callable[[int], None] = lambda _: None) -> str:
    """The file's digest of the kind that the etag is."""
    if len(etag) == 64:
        hasher = hashlib.sha256()
    else:
        hasher = hashlib.sha1(f"blob {file.stat().st_size}\0".encode(), usedforsecurity=False)
    with file.open("rb") as opened:
        while block := opened.read(_BLOCK):
            hasher.update(block)
            tell(len(block))
    return hasher.hexdigest()


def manifest(folder: Path) -> str:
    """SHA-256 over what the hub said of every file: two folders with the same one were fetched from the same commit.

    Raises:
        UsageError: Nothing was fetched into the folder.
    """
    text = json.dumps(sorted((name, *item) for name, item in named(folder).items()))
    return hashlib.sha256(text.encode()).hexdigest()


def verify(
    folder: Path,
    revision: str,
    *,
    rehash: bool = False,
    stamp: Path | None = None,
    tell: Callable[[int], None] = lambda _: None,
) -> Verified:
    """Compare a folder with what the hub named, and remember what was hashed.

    Args:
        folder: The checkpoint.
        revision: The commit that every file must be of; "" for any one.
        rehash: Read every file again.
        stamp: Where it is remembered; in the folder unless said otherwise.
        tell: Told the bytes as they are read.

    Raises:
        UsageError: Nothing was fetched into the folder.
        NotReadyError: What was found cannot be remembered.
    """
    expected = named(folder)
    place = stamp or folder / STAMP
    known = {} if rehash else remembered(place)
    state: dict[str, Any] = {}
    problems, hashed = [], 0
    commits = {item.commit for item in expected.values()}
    if len(commits) > 1:
        problems.append(f"files of {len(commits)} commits are mixed: {', '.join(sorted(commits))}")
    elif revision and commits != {revision}:
        problems.append(f"this is commit {commits.pop()}, the stack pins {revision}")
    for name, item in expected.items():
        file = folder / name
        if not file.is_file():
            problems.append(f"{name} is missing")
            continue
        seen = _identity(file)
        if known.get(name) != [*seen, item.etag]:
            hashed += 1
            if digest(file, item.etag, tell) != item.etag:
                problems.append(f"{name} is damaged: it has another hash than the hub named")
                continue
        state[name] = [*seen, item.etag]
    _write(place, state)
    return Verified(len(expected), hashed, tuple(problems))


def _identity(file: Path) -> list[int]:
    stat = file.stat()
    return [stat.st_size, stat.st_mtime_ns, stat.st_ino]


def remembered(place: Path) -> dict[str, Any]:
    """What a stamp holds: each file that was hashed and found whole; empty where there is none."""
    try:
        found = json.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _write(place: Path, state: dict[str, Any]) -> None:
    part = place.with_name(f".{place.name}.part")
    try:
        part.write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")
        part.replace(place)
    except OSError as error:
        raise NotReadyError(
            f"what was hashed cannot be remembered ({error.strerror})",
            where=str(place.parent),
            next_step="run it as the folder's owner",
        ) from None
