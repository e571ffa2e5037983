"""Strict hunks: applying and undoing are inverse; one wrong byte in a context line is refused."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from patch_targets import BACKEND, snapshot, unified, write_series, write_target
from unidiff.patch import PatchedFile, PatchSet

from fastfill import patching
from fastfill.errors import FastfillError
from fastfill.patching.hunks import HunkError, transform

LINES = st.text(alphabet="ab \t\r\f\x85-+@\\é", max_size=6)


@st.composite
def file_and_edit(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A file before and after some lines were removed, added and replaced; either may end without a newline."""
    before = draw(st.lists(LINES, min_size=1, max_size=40))
    after = list(before)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(after)))
        after[at : at + draw(st.integers(0, 2))] = draw(st.lists(LINES, max_size=3))
    old, new = ("\n".join(side) + draw(st.sampled_from(["\n", ""])) for side in (before, after))
    assume(old != new and old and new)
    return old.encode(), new.encode()


def parse(text: str) -> PatchedFile:
    return PatchSet.from_string(text)[0]


@given(file_and_edit(), st.integers(0, 3))
def test_applying_and_undoing_are_inverse(edit: tuple[bytes, bytes], context: int) -> None:
    old, new = edit
    patched = parse(unified(BACKEND, old, new, context))
    assert transform(old, patched) == new
    assert transform(new, patched, backwards=True) == old


@given(file_and_edit(), st.data())
def test_a_changed_byte_in_a_line_that_a_hunk_names_is_refused(edit: tuple[bytes, bytes], data: st.DataObject) -> None:
    old, new = edit
    patched = parse(unified(BACKEND, old, new))
    lines = old.split(b"\n")
    hunk = data.draw(st.sampled_from([hunk for hunk in patched if hunk.source_length]))
    line = data.draw(st.integers(hunk.source_start - 1, hunk.source_start + hunk.source_length - 2))
    lines[line] += b"!"
    with pytest.raises(HunkError):
        transform(b"\n".join(lines), patched)


@given(st.integers(1, 5))
def test_lines_moved_by_an_insertion_above_are_refused(moved: int) -> None:
    old = b"".join(b"line %d\n" % number for number in range(30))
    patched = parse(unified(BACKEND, old, old.replace(b"line 20\n", b"line twenty\n")))
    with pytest.raises(HunkError) as refused:
        transform(b"new\n" * moved + old, patched)
    assert refused.value.mismatches[0].line == 18


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
@given(st.data())
def test_one_changed_byte_anywhere_means_nothing_is_written(tmp_path: Path, data: st.DataObject) -> None:
    shutil.rmtree(tmp_path, ignore_errors=True)
    old = b"".join(b"line %d\n" % number for number in range(30))
    new = old.replace(b"line 20\n", b"line twenty\n")
    series = write_series(tmp_path / "series", [{BACKEND: (old, new)}])
    at = data.draw(st.integers(0, len(old) - 1))
    damaged = old[:at] + bytes([old[at] ^ data.draw(st.integers(1, 127))]) + old[at + 1 :]
    root = write_target(tmp_path / "root", {BACKEND: damaged})
    before = snapshot(root)
    with pytest.raises(FastfillError):
        patching.apply(root, series)
    assert snapshot(root) == before


@pytest.mark.skipif(shutil.which("git") is None, reason="git is the reference here")
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edit=file_and_edit())
def test_git_agrees(tmp_path: Path, edit: tuple[bytes, bytes]) -> None:
    old, new = edit
    place = tmp_path / "a"
    place.mkdir(exist_ok=True)
    (place / "file.py").write_bytes(old)
    diff = unified("file.py", old, new)
    (place / "p.patch").write_bytes(diff.encode())
    subprocess.run(
        ["git", "apply", "-p1", "--whitespace=nowarn", "p.patch"], cwd=place, check=True, env={"GIT_DIR": ""}
    )
    assert (place / "file.py").read_bytes() == transform(old, parse(diff))
