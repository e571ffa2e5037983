"""What differs in a file that is not a listed source: against the nearest known content, or hunk by hunk."""

from __future__ import annotations

import difflib
import zipfile
from pathlib import Path
from typing import NamedTuple

from fastfill.errors import UsageError
from fastfill.patching.hunks import HunkError, Mismatch, lines_of, transform
from fastfill.patching.series import Patch, Series
from fastfill.patching.state import FileState, sha256, touching, with_patches

_LONGEST = 200
"""Lines of a diff that are shown; the rest is counted."""


def _text(content: bytes) -> list[str]:
    return lines_of(content.decode("utf-8", errors="replace"))


def _shorten(lines: list[str]) -> str:
    shown = [line.rstrip("\n") for line in lines[:_LONGEST]]
    if len(lines) > _LONGEST:
        shown.append(f"... and {len(lines) - _LONGEST} more lines")
    return "\n".join(shown)


def _unified(old: list[str], new: list[str], old_name: str, new_name: str) -> list[str]:
    return list(difflib.unified_diff(old, new, old_name, new_name, n=2))


def read_pristine(place: Path, path: str) -> bytes | None:
    """One file of an unchanged SGLang.

    Args:
        place: A wheel, a folder that holds one wheel, a site-packages folder or the package folder.
        path: The file, relative to the folder that holds the package.

    Raises:
        UsageError: The place does not exist or is not a wheel.
    """
    if place.is_dir():
        for candidate in (place / path, place.parent / path if place.name == "sglang" else place / path):
            if candidate.is_file():
                return candidate.read_bytes()
        wheels = sorted(place.glob("sglang-*.whl"))
        if not wheels:
            return None
        place = wheels[-1]
    try:
        with zipfile.ZipFile(place) as wheel:
            return wheel.read(path)
    except KeyError:
        return None
    except (OSError, zipfile.BadZipFile) as error:
        raise UsageError(
            f"--pristine is neither a folder nor a wheel: {error}",
            where=str(place),
            next_step="pip download --no-deps sglang==VERSION, and give the wheel, or the folder it is unpacked in",
        ) from None


def nearest(series: Series, state: FileState, pristine: bytes) -> str:
    """The diff from the known content (unpatched, or with the first n patches) that is least different."""
    patches = touching(series, state.path)
    best: list[str] | None = None
    for count in range(len(patches) + 1):
        known = with_patches(pristine, patches[:count], state.path)
        name = f"sglang-{series.sources.version}/{state.path}" + (f" with {count} of our patches" if count else "")
        diff = _unified(_text(known), _text(state.content or b""), name, f"target/{state.path}")
        if best is None or len(diff) < len(best):
            best = diff
    return _shorten(best or [])


class _Reading(NamedTuple):
    """How the file looks if it carries a given number of the patches.

    Attributes:
        lines: What to show.
        unexplained: Hunks whose lines are not in the file at all.
        moved: Hunks whose lines are there, but not at their stated line.
    """

    lines: list[str]
    unexplained: int
    moved: int


def by_hunk(series: Series, state: FileState) -> str:
    """Which of the lines that the patches expect are not there, as diffs from the expected lines to the file's.

    The file may carry some of the patches already: the number of them that leaves the least unexplained is assumed.
    """
    patches = touching(series, state.path)
    readings = [_read(patches, state, count) for count in range(len(patches) + 1)]
    # Of two that explain as much, the later: a patched file is likelier than one that looks so by chance.
    best = min(reversed(readings), key=lambda reading: (reading.unexplained, reading.moved))
    if not best.lines:
        return (
            f"{state.path}: every line that the patches change is as they expect; the file differs elsewhere. "
            "Give unchanged files with --pristine to see where."
        )
    return _shorten(best.lines)


def _read(patches: list[Patch], state: FileState, applied: int) -> _Reading:
    lines: list[str] = []
    unexplained = moved = 0
    for steps, backwards in ((patches[:applied][::-1], True), (patches[applied:], False)):
        content, told = state.content or b"", False
        for patch in steps:
            try:
                content = transform(content, patch.files[state.path], backwards=backwards)
            except HunkError as error:
                for mismatch in error.mismatches:
                    offset = _offset(_text(content), mismatch)
                    unexplained += offset is None
                    moved += offset is not None
                    # What a later patch expects depends on the first that failed: it is tried, to tell how well this
                    # reading explains the file, but what it misses may be no fault of the file.
                    lines += [] if told else _show(patch.name, state.path, _text(content), mismatch, offset)
                told = True
    return _Reading(lines, unexplained, moved)


def _show(name: str, path: str, lines: list[str], mismatch: Mismatch, offset: int | None) -> list[str]:
    title = f"expected by {name} at line {mismatch.line}"
    if offset is None:
        return _unified(mismatch.expected, _best_window(lines, mismatch), title, f"target/{path}")
    return [f"{title}: found {abs(offset)} line(s) {'later' if offset > 0 else 'earlier'}"]


def _offset(lines: list[str], mismatch: Mismatch) -> int | None:
    """By how many lines the expected ones are moved; None when they are nowhere near."""
    expected, here = mismatch.expected, mismatch.line - 1
    for distance in range(1, _LONGEST):
        for start in (here + distance, here - distance):
            if start >= 0 and lines[start : start + len(expected)] == expected:
                return start - here
    return None


def _best_window(lines: list[str], mismatch: Mismatch) -> list[str]:
    """The lines in the file where most of the expected ones are, near the stated line."""
    expected, here = mismatch.expected, mismatch.line - 1

    def score(start: int) -> tuple[int, int]:
        window = lines[start : start + len(expected)]
        return sum(a == b for a, b in zip(expected, window, strict=False)), -abs(start - here)

    best = max(range(max(0, here - _LONGEST), here + _LONGEST), key=score)
    return lines[best : best + len(expected)]


def explain(series: Series, state: FileState, pristine: Path | None) -> tuple[str, bool]:
    """What to show for an unknown file, and whether an unchanged file was at hand to compare with.

    Raises:
        UsageError: ``pristine`` was given but its file is not a listed source either.
    """
    if state.content is None:
        return f"{state.path} is missing", True
    if pristine is not None:
        original = read_pristine(pristine, state.path)
        if original is None or not series.sources.accepts(state.path, sha256(original)):
            raise UsageError(
                f"--pristine does not hold an unchanged {state.path} of SGLang {series.sources.version}",
                where=str(pristine),
                next_step=f"python -m pip download --no-deps sglang=={series.sources.version} --dest DIR",
            )
        return nearest(series, state, original), True
    return by_hunk(series, state), False
