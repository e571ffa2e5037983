"""Strict application of unified-diff hunks to a file's bytes: the stated line, the stated context, or nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from unidiff.patch import Hunk, PatchedFile

_NO_NEWLINE = "\\"


class Mismatch(NamedTuple):
    """One hunk whose context is not in the file where the patch says it is.

    Attributes:
        line: The first line of the hunk in the file, from 1.
        expected: The lines that the patch expects there, with their line ends.
        found: The lines that the file has there.
    """

    line: int
    expected: list[str]
    found: list[str]


class HunkError(Exception):
    """At least one hunk of a file does not match exactly."""

    def __init__(self, path: str, mismatches: list[Mismatch]) -> None:
        super().__init__(f"{path}: {len(mismatches)} hunk(s) do not match")
        self.path = path
        self.mismatches = mismatches


class _Edit(NamedTuple):
    start: int
    old: list[str]
    new: list[str]


def lines_of(text: str) -> list[str]:
    """Split at ``\\n`` only, line ends kept: form feeds and carriage returns are content, as they are to diff."""
    parts = text.split("\n")
    lines = [part + "\n" for part in parts[:-1]]
    return [*lines, parts[-1]] if parts[-1] else lines


def _sides(hunk: Hunk) -> tuple[list[str], list[str]]:
    """The hunk's lines before and after, with the missing newline at a file's end taken into account."""
    old: list[str] = []
    new: list[str] = []
    last = " "
    for line in hunk:
        if line.line_type == _NO_NEWLINE:
            touched = {" ": (old, new), "-": (old,), "+": (new,)}[last]
            for side in touched:
                side[-1] = side[-1].removesuffix("\n")
            continue
        last = line.line_type
        if last in " -":
            old.append(line.value)
        if last in " +":
            new.append(line.value)
    return old, new


def _edits(patched: PatchedFile, *, backwards: bool) -> list[_Edit]:
    edits = []
    for hunk in patched:
        old, new = _sides(hunk)
        # A side of length 0 is numbered by the line before it (diff's rule), so it starts one line later.
        before = hunk.source_start - 1 if hunk.source_length else hunk.source_start
        after = hunk.target_start - 1 if hunk.target_length else hunk.target_start
        edits.append(_Edit(after, new, old) if backwards else _Edit(before, old, new))
    return edits


def transform(content: bytes, patched: PatchedFile, *, backwards: bool = False) -> bytes:
    """The file's bytes after one patch (or before it, ``backwards``).

    Args:
        content: The whole file.
        patched: The hunks for this file.
        backwards: Undo the patch instead of applying it.

    Raises:
        HunkError: A hunk's lines are not exactly at its stated line. All such hunks are listed.
    """
    lines = lines_of(content.decode("utf-8", errors="surrogateescape"))
    result: list[str] = []
    mismatches: list[Mismatch] = []
    done = 0
    for edit in _edits(patched, backwards=backwards):
        end = edit.start + len(edit.old)
        found = lines[edit.start : end]
        if found != edit.old or edit.start < done:
            mismatches.append(Mismatch(edit.start + 1, edit.old, found))
        result += lines[done : edit.start] + edit.new
        done = max(done, end)
    if mismatches:
        raise HunkError(patched.path, mismatches)
    return "".join(result + lines[done:]).encode("utf-8", errors="surrogateescape")
