"""Apply, check, reverse, status on a target: idempotent, exact, all or nothing."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from patch_targets import BACKEND, UTILS, Case, snapshot, write_target

from fastfill import patching
from fastfill.errors import FastfillError, NotReadyError, UsageError
from fastfill.patching import run


@contextlib.contextmanager
def not_root() -> Iterator[None]:
    """Root may write to read-only folders, so be nobody for a while."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


def contents(case: Case) -> dict[str, bytes]:
    return {path: (case.root / path).read_bytes() for path in case.before}


def test_apply_then_reverse_gives_every_file_its_bytes_and_mode_back(case: Case) -> None:
    (case.root / BACKEND).chmod(0o640)
    before = snapshot(case.root)
    assert patching.apply(case.root, case.series).changed
    assert contents(case) == case.after
    assert (case.root / BACKEND).stat().st_mode & 0o777 == 0o640
    assert patching.reverse(case.root, case.series).changed
    assert snapshot(case.root) == before


def test_a_second_apply_changes_nothing_and_says_so(case: Case) -> None:
    patching.apply(case.root, case.series)
    stamps = {path: (case.root / path).stat().st_mtime_ns for path in case.before}
    report = patching.apply(case.root, case.series)
    assert (report.state, report.changed) == ("applied", False)
    assert stamps == {path: (case.root / path).stat().st_mtime_ns for path in case.before}


def test_reversing_an_unpatched_target_changes_nothing(case: Case) -> None:
    report = patching.reverse(case.root, case.series)
    assert (report.state, report.changed) == ("not_applied", False)


def test_status_follows_the_target(case: Case) -> None:
    assert patching.status(case.root, case.series).state == "not_applied"
    patching.apply(case.root, case.series)
    assert patching.status(case.root, case.series).state == "applied"


@pytest.mark.parametrize("backend", ["before", "between", "after"])
@pytest.mark.parametrize("utils", ["before", "after"])
@pytest.mark.parametrize("action", ["apply", "reverse"])
def test_a_partly_patched_target_is_finished_or_undone(case: Case, backend: str, utils: str, action: str) -> None:
    (case.root / BACKEND).write_bytes(getattr(case, backend)[BACKEND])
    (case.root / UTILS).write_bytes(getattr(case, utils)[UTILS])
    getattr(patching, action)(case.root, case.series)
    assert contents(case) == (case.after if action == "apply" else case.before)


def test_a_partly_patched_target_is_called_partial(case: Case) -> None:
    (case.root / BACKEND).write_bytes(case.after[BACKEND])
    report = patching.status(case.root, case.series)
    assert report.state == "partial"
    assert [(file.applied, file.total) for file in report.files] == [(2, 2), (0, 1)]


def test_a_file_changed_by_someone_else_is_refused_untouched_and_shown(case: Case) -> None:
    path = case.root / UTILS
    path.write_bytes(case.before[UTILS].replace(b"line 2\n", b"line two, mine\n"))
    before = snapshot(case.root)
    for action in (run.apply, run.reverse, run.check):
        with pytest.raises(FastfillError) as refused:
            action(case.root, case.series)
        assert refused.value.code == 1
        assert "-line 2\n" in refused.value.detail + "\n"
        assert "+line two, mine" in refused.value.detail
        assert f"sglang=={'0.5.16'}" in refused.value.next_step
    assert snapshot(case.root) == before
    assert patching.status(case.root, case.series).state == "foreign"


def test_a_change_to_a_patched_file_is_shown_against_the_patched_lines(case: Case) -> None:
    (case.root / BACKEND).write_bytes(case.after[BACKEND].replace(b"line 20 and a half\n", b"mine\n"))
    with pytest.raises(FastfillError) as refused:
        patching.reverse(case.root, case.series)
    diff = refused.value.detail.splitlines()
    assert [line for line in diff if line[:1] in "+-" and line[:3] not in ("+++", "---")] == [
        "-line 20 and a half",
        "+mine",
    ]
    assert "step-1.patch" in diff[0]


def test_lines_that_are_only_moved_are_said_to_be(case: Case) -> None:
    (case.root / UTILS).write_bytes(case.before[UTILS].replace(b"line 20\n", b"line 20\nmine\n"))
    with pytest.raises(FastfillError) as refused:
        patching.apply(case.root, case.series)
    assert refused.value.detail == "expected by step-1.patch at line 37: found 1 line(s) later"


def test_a_change_far_from_the_hunks_is_refused_too(case: Case) -> None:
    (case.root / UTILS).write_bytes(case.before[UTILS].replace(b"line 20\n", b"line twenty, mine\n"))
    with pytest.raises(FastfillError) as refused:
        patching.apply(case.root, case.series)
    assert "--pristine" in refused.value.next_step


def test_with_an_unchanged_copy_the_whole_difference_is_shown(case: Case, tmp_path: Path) -> None:
    pristine = write_target(tmp_path / "pristine", case.before)
    (case.root / UTILS).write_bytes(case.after[UTILS].replace(b"line 20\n", b"line twenty, mine\n"))
    with pytest.raises(FastfillError) as refused:
        patching.apply(case.root, case.series, pristine=pristine)
    changed = [
        line for line in refused.value.detail.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")
    ]
    # Against the patched file, which is nearer than the unpatched one.
    assert changed == ["-line 20", "+line twenty, mine"]


def test_a_copy_that_is_not_unchanged_is_no_copy_to_compare_with(case: Case, tmp_path: Path) -> None:
    pristine = write_target(tmp_path / "pristine", case.after)
    (case.root / UTILS).write_bytes(b"mine\n")
    with pytest.raises(UsageError, match="does not hold an unchanged"):
        patching.apply(case.root, case.series, pristine=pristine)


def test_a_missing_file_is_named(case: Case) -> None:
    (case.root / UTILS).unlink()
    with pytest.raises(FastfillError) as refused:
        patching.apply(case.root, case.series)
    assert f"{UTILS} is missing" in refused.value.detail


@pytest.mark.parametrize("nth", [1, 2])
def test_when_a_write_fails_every_file_is_as_it_was(
    case: Case, failing_rename: Callable[[int], None], nth: int
) -> None:
    before = snapshot(case.root)
    failing_rename(nth)
    with pytest.raises(NotReadyError, match="nothing was changed"):
        patching.apply(case.root, case.series)
    assert snapshot(case.root) == before
    patching.apply(case.root, case.series)
    assert contents(case) == case.after


@pytest.mark.parametrize("nth", [1, 2])
def test_an_interrupt_between_two_writes_is_undone(case: Case, monkeypatch: pytest.MonkeyPatch, nth: int) -> None:
    before = snapshot(case.root)
    real, calls = Path.replace, [0]

    def replace(self: Path, target: Path) -> Path:
        calls[0] += 1
        result = real(self, target)
        if calls[0] == nth:
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(KeyboardInterrupt):
        patching.apply(case.root, case.series)
    assert snapshot(case.root) == before


def test_a_killed_run_s_leftovers_are_swept(case: Case) -> None:
    leftover = (case.root / BACKEND).with_name(".aiter_backend.py.k1lled.fastfill")
    leftover.write_text("half a file")
    patching.apply(case.root, case.series)
    assert not leftover.exists()


def test_a_read_only_target_is_a_clear_error(case: Case) -> None:
    with tempfile.TemporaryDirectory() as place:
        root, series = Path(place) / "root", Path(place) / "series"
        shutil.copytree(case.root, root)
        shutil.copytree(case.series, series)
        folder = (root / BACKEND).parent
        Path(place).chmod(0o755)
        folder.chmod(0o555)
        before = snapshot(root)
        with not_root(), pytest.raises(NotReadyError, match="cannot be written") as refused:
            patching.apply(root, series)
        assert str(folder) in refused.value.where
        assert snapshot(root) == before
        folder.chmod(0o755)


def test_a_hard_link_shared_with_a_package_cache_keeps_its_bytes(case: Case, tmp_path: Path) -> None:
    # uv and conda link site-packages to their cache: writing in place would patch every environment on the machine.
    cached = tmp_path / "cached.py"
    os.link(case.root / BACKEND, cached)
    patching.apply(case.root, case.series)
    assert cached.read_bytes() == case.before[BACKEND]


def test_a_symbolic_link_stays_one_and_its_target_is_patched(case: Case, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.py"
    shutil.move(case.root / BACKEND, elsewhere)
    (case.root / BACKEND).symlink_to(elsewhere)
    patching.apply(case.root, case.series)
    assert (case.root / BACKEND).is_symlink()
    assert elsewhere.read_bytes() == case.after[BACKEND]


def test_two_runs_at_once_leave_it_applied_once(case: Case) -> None:
    reports = []
    threads = [
        threading.Thread(target=lambda: reports.append(patching.apply(case.root, case.series))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(report.changed for report in reports) == [False, False, False, True]
    assert contents(case) == case.after
