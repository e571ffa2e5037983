"""A series that is not well formed is refused, with the file and the field."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from patch_targets import BACKEND, UTILS, Case, write_series, write_target

from fastfill import patching
from fastfill.errors import UsageError
from fastfill.patching.header import read_header
from fastfill.patching.series import read_series


def replace(name: str, old: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    return change


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda folder: (folder / "series").unlink(), "no patch series here"),
        (lambda folder: (folder / "series").write_text("# nothing\n"), "lists no patch"),
        (lambda folder: (folder / "series").write_text("gone.patch\n"), "does not exist"),
        (lambda folder: (folder / "step-0.patch").write_bytes(b"\xff\xfe"), "not UTF-8"),
        (lambda folder: (folder / "sources.toml").unlink(), "no sources.toml"),
        (replace("sources.toml", "version =", "versions ="), "version"),
        (replace("sources.toml", 'found_in = "a test"', 'found_in = ""'), "found_in"),
        (replace("sources.toml", UTILS, "sglang/other.py"), "no source hash is listed"),
        (replace("step-0.patch", "Description:", "Note:"), "no Description or Subject"),
        (replace("step-0.patch", "Author:", "Note:"), "no Origin or Author"),
        (replace("step-0.patch", "Forwarded: no", "Note: x"), "no Forwarded"),
        (replace("step-0.patch", "Forwarded: no", "Forwarded: maybe"), "DEP-3 allows"),
        (replace("step-0.patch", "Last-Update: 2026-11-30", "Last-Update: today"), "not a date"),
        (replace("step-0.patch", "Last-Update: 2026-11-30", "Last-Update: 2026-13-30"), "month"),
        (replace("step-0.patch", "Reason:", "Because:"), "no Reason"),
        (replace("step-0.patch", "/sglang/", "/../sglang/"), "inside the sglang package"),
        (replace("step-0.patch", f"--- a/{BACKEND}", "--- /dev/null"), "not add, remove or rename"),
    ],
)
def test_refused(case: Case, damage: Callable[[Path], None], says: str) -> None:
    damage(case.series)
    with pytest.raises(UsageError) as refused:
        read_series(case.series)
    assert says in refused.value.what
    assert str(case.series) in refused.value.where


def test_paths_of_a_diff_made_in_sglang_s_repository_are_understood(case: Case) -> None:
    patch = case.series / "step-0.patch"
    patch.write_text(
        patch.read_text().replace("a/sglang/", "a/python/sglang/").replace("b/sglang/", "b/python/sglang/")
    )
    assert patching.apply(case.root, case.series).changed


def test_the_reason_may_stand_in_the_long_description(case: Case) -> None:
    patch = case.series / "step-0.patch"
    text = patch.read_text().replace("Reason: a test\n", "")
    patch.write_text(text.replace("Author:", " Long text.\n .\n Reason: temporary,\n until then.\n .\n More.\nAuthor:"))
    assert read_header(patch.read_text(), patch).reason == "temporary, until then."


def test_a_series_that_does_not_apply_to_its_own_source_is_the_series_fault(tmp_path: Path) -> None:
    old = "".join(f"line {number}\n" for number in range(20)).encode()
    wrong = old.replace(b"line 9\n", b"line nine\n")
    series = write_series(tmp_path / "series", [{BACKEND: (wrong, wrong.replace(b"line 10\n", b""))}])
    sources = series / "sources.toml"
    import hashlib

    sources.write_text(sources.read_text().replace(hashlib.sha256(wrong).hexdigest(), hashlib.sha256(old).hexdigest()))
    root = write_target(tmp_path / "root", {BACKEND: old})
    with pytest.raises(UsageError, match="does not apply to a source that it lists"):
        patching.apply(root, series)
    assert (root / BACKEND).read_bytes() == old
