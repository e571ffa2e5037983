"""Makes targets and series to patch."""

from __future__ import annotations

import difflib
import hashlib
from pathlib import Path
from typing import NamedTuple

VERSION = "0.5.16"
BACKEND = "sglang/srt/layers/attention/aiter_backend.py"
UTILS = "sglang/srt/layers/attention/aiter_utils.py"
HEADER = """Description: {name}
Author: fastfill
Forwarded: no
Last-Update: 2026-11-30
Reason: a test

"""


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def unified(path: str, old: bytes, new: bytes, context: int = 3) -> str:
    """A git-style diff, with diff's marker where a file ends without a newline."""
    sides = [[line + "\n" for line in text.decode().split("\n")] for text in (old, new)]
    for side in sides:
        last = side.pop().removesuffix("\n")
        if last:
            side.append(last)
    lines = difflib.unified_diff(sides[0], sides[1], f"a/{path}", f"b/{path}", n=context)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def write_series(folder: Path, steps: list[dict[str, tuple[bytes, bytes]]], version: str = VERSION) -> Path:
    """A series with one patch per step; a step gives each file's bytes before and after it."""
    folder.mkdir(parents=True, exist_ok=True)
    names = []
    first: dict[str, bytes] = {}
    for number, step in enumerate(steps):
        name = f"step-{number}.patch"
        diffs = "".join(unified(path, old, new) for path, (old, new) in step.items())
        (folder / name).write_text(HEADER.format(name=name) + diffs)
        names.append(name)
        for path, (old, _) in step.items():
            first.setdefault(path, old)
    (folder / "series").write_text("# the order\n" + "\n".join(names) + "\n")
    sources = f'version = "{version}"\n'
    for path, content in first.items():
        sources += f'[[files."{path}"]]\nsha256 = "{sha256(content)}"\nfound_in = "a test"\n'
    (folder / "sources.toml").write_text(sources)
    return folder


def write_target(root: Path, files: dict[str, bytes], version: str = VERSION) -> Path:
    """A site-packages folder that holds an sglang package with these files."""
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
    (root / "sglang" / "__init__.py").write_text("raise ImportError('must not be imported')\n")
    (root / f"sglang-{version}.dist-info").mkdir()
    (root / f"sglang-{version}.dist-info" / "METADATA").write_text(f"Name: sglang\nVersion: {version}\n")
    return root


def snapshot(root: Path) -> dict[str, tuple[bytes, int]]:
    """Every file under a folder, with its bytes and mode."""
    return {
        str(path.relative_to(root)): (path.read_bytes(), path.stat().st_mode)
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


class Case(NamedTuple):
    """A target, a series for it, and the bytes of each file before, between and after its two patches."""

    root: Path
    series: Path
    before: dict[str, bytes]
    between: dict[str, bytes]
    after: dict[str, bytes]


def numbered(count: int) -> list[str]:
    return [f"line {number}\n" for number in range(1, count + 1)]


def edit(content: bytes, changes: dict[str, str]) -> bytes:
    text = content.decode()
    for old, new in changes.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    return text.encode()
