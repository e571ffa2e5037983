"""What a release is made of, on disk and by name."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fastfill.errors import UsageError
from fastfill.fleet import bundle, places, release

IMAGE_ID = "sha256:" + "0d5960cb" * 8
RELEASE: dict[str, Any] = {"name": "2026-11", "image": "fastfill:x", "image_id": IMAGE_ID, "settings": {"A": 1}}
ONE: dict[str, Any] = {"name": "main", "port": 30000, "bind": "10.0.0.1"}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"image_id": ""}, "not pinned"),
        ({"image": "x@sha256:12"}, "64 hex digits"),
        ({"image": ""}, "no image"),
        ({"name": "Big Name"}, "no name for a release"),
        ({"imageid": "x"}, "no such key: imageid"),
    ],
)
def test_a_release_that_says_too_little_is_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        release.check({**RELEASE, **change})


def test_the_id_follows_everything_that_decides() -> None:
    files = {"compose.yaml": "a"}
    first = release.identity(RELEASE, ONE, files)
    assert first.startswith("2026-11-") and first == release.identity(dict(RELEASE), dict(ONE), dict(files))
    others = [
        release.identity({**RELEASE, "settings": {"A": 2}}, ONE, files),
        release.identity({**RELEASE, "environment": {"B": "1"}}, ONE, files),
        release.identity(RELEASE, {**ONE, "port": 30001}, files),
        release.identity(RELEASE, ONE, {"compose.yaml": "b"}),
    ]
    assert len({first, *others}) == 5
    assert release.identity({**RELEASE, "archive": "/elsewhere"}, ONE, files) == first


def test_the_engine_never_restarts_a_server() -> None:
    text = release.override(RELEASE, ONE, "2026-11-x", {})
    assert '"restart": "no"' in text and '"ports": !override [' in text and "10.0.0.1:30000:30000" in text
    assert '"image": "fastfill-release:0d5960cb0d5960cb0d59"' in text
    assert "environment" not in text and "kernels" not in text


def test_each_server_of_a_host_has_its_own_gpus_profile_and_kernels() -> None:
    two = {**ONE, "name": "two", "gpus": [4, 5, 6, 7], "profile": "balanced"}
    lines = release.settings(RELEASE, two).splitlines()
    assert {"FASTFILL_GPUS=4,5,6,7", "FASTFILL_TP=4", "FASTFILL_PROFILE=balanced"} <= set(lines)
    compose = (Path(__file__).parents[2] / "compose.yaml").read_text()
    named = release.override(RELEASE, two, "x", {"compose.yaml": compose})
    assert re.search(r'"kernels": {\s*"name": "fastfill-kernels-[0-9a-f]+-two"', named)


def test_settings_that_would_break_the_file_are_refused() -> None:
    assert release.settings(RELEASE, {"settings": {"B": "x"}}) == "A=1\nB=x\n"
    for value in ("a\nB=1", "$HOME", "it's"):
        with pytest.raises(UsageError, match="cannot stand in"):
            release.settings({"settings": {"A": value}}, {})


@pytest.mark.parametrize("name", ["", "A", "../x", "a/b", "-a", "x" * 40])
def test_an_instance_is_named_so_that_folders_and_units_can_be(name: str) -> None:
    with pytest.raises(UsageError):
        places.checked(name)


def test_the_bundle_is_the_same_bytes_and_runs_without_this_checkout(tmp_path: Path) -> None:
    file = tmp_path / "fleet.pyz"
    assert bundle.write(file) and not bundle.write(file)
    argv = [sys.executable, "-I", "-S", str(file), "--root", str(tmp_path), "status"]
    done = subprocess.run(argv, capture_output=True, text=True, cwd="/", check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert '"instances": []' in done.stdout


def test_a_link_never_names_a_release_that_is_gone(tmp_path: Path) -> None:
    one = places.Instance(tmp_path, "main")
    one.folder.mkdir(parents=True)
    one.point("proven", "a")
    assert one.link("proven") is None
