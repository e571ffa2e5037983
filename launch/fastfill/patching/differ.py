"""What differs in a file that is not a listed source: against the nearest known content, or hunk by hunk."""

from __future__ import annotations

import difflib
import zipfile
from pathlib import Path

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
        raise UsageError(f"--pristine is neither a folder nor a wheel: {error}", where=str(place)) from None


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


def by_hunk(series: Series, state: FileState) -> str:
    """Which of the lines that the patches expect are not there, as diffs from the expected lines to the file's.

    The file may carry some of the patches already: the number of them that leaves the least unexplained is assumed.
    """
    patches = touching(series, state.path)
    readings = [_mismatches(patches, state, count) for count in range(len(patches) + 1)]
    best = min(readings, key=len)
    if not best:
        return (
            f"{state.path}: every line that the patches change is as they expect; the file differs elsewhere. "
            "Give unchanged files with --pristine to see where."
        )
    lines: list[str] = []
    for name, mismatch in best:
        found = _window(state.content or b"", mismatch.line, mismatch.expected)
        title = f"expected by {name} at line {mismatch.line}"
        lines += _unified(mismatch.expected, found, title, f"target/{state.path}")
    return _shorten(lines)


def _mismatches(patches: list[Patch], state: FileState, applied: int) -> list[tuple[str, Mismatch]]:
    """The hunks that do not match if the file carries the first ``applied`` patches."""
    found: list[tuple[str, Mismatch]] = []
    for steps, backwards in ((patches[:applied][::-1], True), (patches[applied:], False)):
        content = state.content or b""
        for patch in steps:
            try:
                content = transform(content, patch.files[state.path], backwards=backwards)
            except HunkError as error:
                found += [(patch.name, mismatch) for mismatch in error.mismatches]
                # What the next patch expects depends on this one, so nothing more can be said this way.
                break
    return found


def _window(content: bytes, line: int, expected: list[str]) -> list[str]:
    """The file's lines where the expected ones were found best: at the stated line, or moved by up to 200 lines."""
    lines = _text(content)
    here = lines[line - 1 : line - 1 + len(expected)]
    best, best_score = here, sum(a == b for a, b in zip(expected, here, strict=False))
    for start in range(max(0, line - 1 - _LONGEST), min(len(lines), line - 1 + _LONGEST)):
        window = lines[start : start + len(expected)]
        score = sum(a == b for a, b in zip(expected, window, strict=False))
        if score > best_score:
            best, best_score = window, score
    # Moved but whole: a diff would be empty, and what matters is that it is not where the patch says.
    return here if best == expected else best


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
