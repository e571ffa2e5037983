"""The series that ships, on SGLang's own files from its wheel."""

from __future__ import annotations

import shutil
import sys
import zipfile
from pathlib import Path

import pytest
from patch_targets import BACKEND, UTILS, sha256, snapshot

from fastfill import data, patching
from fastfill.errors import FastfillError
from fastfill.patching.series import available, folder_for, read_series

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@pytest.mark.parametrize("version", available())
def test_every_shipped_series_is_well_formed_and_says_why(version: str) -> None:
    folder = folder_for(version)
    assert folder is not None
    series = read_series(folder)
    assert series.sources.version == version
    assert all(patch.header.reason for patch in series.patches)
    assert {path.name for path in folder.glob("*.patch")} == {patch.name for patch in series.patches}


@pytest.mark.parametrize("version", available())
def test_every_series_is_part_of_fastfills_wheel(version: str) -> None:
    """An installed fastfill finds its series in its own data; a checkout would hide that one is left out."""
    project = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert included[f"patches/sglang-{version}"] == f"fastfill/data/patches/sglang-{version}"


def test_it_applies_to_the_wheel_and_comes_off_again(real_target: Path) -> None:
    before = snapshot(real_target)
    report = patching.apply(real_target)
    assert (report.state, report.changed) == ("applied", True)
    for path in (BACKEND, UTILS):
        source = (real_target / path).read_text()
        assert "sglang_fastfill" in source
        compile(source, path, "exec")
    assert not patching.apply(real_target).changed
    patching.reverse(real_target)
    assert snapshot(real_target) == before


def test_the_listed_hash_is_the_wheel_s(real_wheel: Path) -> None:
    sources = read_series(data.patches() / "sglang-0.5.16").sources
    with zipfile.ZipFile(real_wheel) as wheel:
        assert all(sources.accepts(path, sha256(wheel.read(path))) for path in sources.files)


def test_a_wheel_serves_as_the_unchanged_copy(real_wheel: Path, real_target: Path) -> None:
    path = real_target / UTILS
    path.write_bytes(path.read_bytes() + b"\nMINE = True\n")
    with pytest.raises(FastfillError) as refused:
        patching.apply(real_target, pristine=real_wheel)
    assert "+MINE = True" in refused.value.detail.splitlines()
    with pytest.raises(FastfillError) as refused:
        patching.apply(real_target, pristine=real_wheel.parent)
    assert "+MINE = True" in refused.value.detail.splitlines()


def test_git_applies_the_same(real_target: Path, tmp_path: Path) -> None:
    import subprocess

    copy = tmp_path / "copy"
    shutil.copytree(real_target, copy)
    patching.apply(real_target)
    series = read_series(data.patches() / "sglang-0.5.16")
    for patch in series.patches:
        command = ["git", "apply", "-p1", str(series.folder / patch.name)]
        subprocess.run(command, cwd=copy, check=True, env={"GIT_DIR": ""})
    assert snapshot(copy) == snapshot(real_target)
