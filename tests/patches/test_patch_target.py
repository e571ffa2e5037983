"""Finding SGLang: the folder forms, the interpreter forms, versions, and what is not SGLang 0.5.16."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from patch_targets import BACKEND, UTILS, Case, write_target

from fastfill import patching
from fastfill.errors import FastfillError, NotReadyError, UsageError
from fastfill.patching.target import locate


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder


def site_packages(venv: Path) -> Path:
    return next((venv / "lib").glob("python*/site-packages"))


def test_the_folder_forms_name_the_same_package(case: Case) -> None:
    assert locate(case.root).package == case.root / "sglang"
    assert locate(case.root / "sglang").package == case.root / "sglang"
    assert locate(case.root).version == "0.5.16"


def test_a_checkout_of_sglang_is_found(tmp_path: Path, case: Case) -> None:
    (tmp_path / "checkout").mkdir()
    case.root.rename(tmp_path / "checkout" / "python")
    assert locate(tmp_path / "checkout").root == tmp_path / "checkout" / "python"


def test_a_virtual_environment_and_its_interpreter_are_asked(venv: Path) -> None:
    root = write_target(site_packages(venv), {BACKEND: b"x\n"})
    for place in (venv, venv / "bin" / "python"):
        assert locate(place).root == root
    assert locate(None, venv / "bin" / "python").version == "0.5.16"


def test_an_editable_installation_leads_to_its_checkout(tmp_path: Path, case: Case) -> None:
    venv = tmp_path / "editable"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    (site_packages(venv) / "sglang.pth").write_text(f"{case.root}\n")
    assert locate(venv).root == case.root
    patching.apply(venv, case.series)
    assert (case.root / BACKEND).read_bytes() == case.after[BACKEND]


def test_a_folder_in_the_working_directory_does_not_hide_the_package(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sglang").mkdir()
    (tmp_path / "sglang" / "__init__.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(case.root))
    assert locate(None).root == case.root


def test_an_interpreter_without_sglang_is_an_error_that_says_so(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    with pytest.raises(NotReadyError, match="has no SGLang"):
        locate(tmp_path / "bare")


def test_what_does_not_exist_and_what_is_not_sglang_are_usage_errors(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        locate(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="no SGLang here"):
        locate(tmp_path)
    with pytest.raises(UsageError, match="--target and --python"):
        locate(tmp_path, tmp_path)


def test_a_file_that_is_no_interpreter_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(NotReadyError, match="cannot be run"):
        locate(tmp_path / "notes.txt")


def test_another_version_is_refused_with_the_versions_that_have_a_series(case: Case) -> None:
    (case.root / "sglang-0.5.16.dist-info").rename(case.root / "sglang-0.5.15.dist-info")
    with pytest.raises(FastfillError, match=r"SGLang 0\.5\.15; the series is for 0\.5\.16") as refused:
        patching.apply(case.root, case.series)
    assert refused.value.code == 1
    with pytest.raises(FastfillError, match="no patch series"):
        patching.apply(case.root)


def test_a_local_version_suffix_is_the_same_version(case: Case) -> None:
    (case.root / "sglang-0.5.16.dist-info").rename(case.root / "sglang-0.5.16+rocm720.dist-info")
    assert patching.apply(case.root, case.series).changed


def test_the_version_is_read_from_the_package_where_there_is_no_dist_info(case: Case) -> None:
    (case.root / "sglang-0.5.16.dist-info" / "METADATA").unlink()
    (case.root / "sglang-0.5.16.dist-info").rmdir()
    assert locate(case.root).version is None
    (case.root / "sglang" / "_version.py").write_text("__version__ = version = '0.5.16'\n")
    assert locate(case.root).version == "0.5.16"


def test_an_unknown_version_whose_files_are_known_is_patched_only_with_a_named_series(case: Case) -> None:
    (case.root / "sglang-0.5.16.dist-info" / "METADATA").unlink()
    (case.root / "sglang-0.5.16.dist-info").rmdir()
    with pytest.raises(FastfillError, match="version of this SGLang is not known"):
        patching.apply(case.root)
    assert patching.apply(case.root, case.series).changed


def test_somebody_s_own_backport_to_0_5_16_is_not_taken_for_a_newer_sglang(case: Case) -> None:
    source = b"from aiter import flash_attn_varlen_fp8_pertensor_func\n" + case.before[BACKEND]
    (case.root / BACKEND).write_bytes(source)
    with pytest.raises(FastfillError, match="someone else changed them") as refused:
        patching.apply(case.root, case.series)
    assert refused.value.detail
    assert (case.root / BACKEND).read_bytes() == source


def test_an_sglang_with_the_path_built_in_is_recognised(tmp_path: Path, case: Case) -> None:
    source = b"from aiter import flash_attn_varlen_fp8_pertensor_func\n"
    root = write_target(tmp_path / "newer", {BACKEND: source, UTILS: b""}, version="0.5.17")
    for series in (None, case.series):
        with pytest.raises(FastfillError, match="has the path built in") as refused:
            patching.apply(root, series)
        assert refused.value.code == 1
        assert "prove" in refused.value.next_step
    assert patching.status(root).state == "built_in"
    assert (root / BACKEND).read_bytes() == source
