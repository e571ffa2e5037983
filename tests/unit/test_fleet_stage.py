"""A release's folder on a host: whole or not at all, and there at every moment."""

from __future__ import annotations

import importlib.util
import json
import stat
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).parents[2] / "ansible/roles/server/library/fleet_stage.py"
_spec = importlib.util.spec_from_file_location("fleet_stage", SOURCE)
assert _spec is not None and _spec.loader is not None
stage = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(stage)
FILES = {"compose.yaml": "x", ".env": "A=1\n", "release.json": "{}"}


class Module:
    """What a module is given, and what compose says."""

    def __init__(self, root: Path, **more: Any) -> None:
        known = {"root": str(root), "secrets": {"api_key": "k"}, "owner": 0, "compose": ["compose.yaml"]}
        self.params = known | more
        self.check_mode = False
        self.code = 0

    def run_command(self, argv: list[str]) -> tuple[int, str, str]:
        return self.code, "", "no such service"

    def fail_json(self, msg: str) -> None:
        raise SystemExit(msg)


def staged(module: Module, **files: str) -> Any:
    one = stage.Stage(module)
    one.server({"name": "main", "release": "a-1", "files": {**FILES, **files}, "about": {"url": "http://h:1"}})
    return one


def test_it_appears_whole_and_is_then_left_alone(tmp_path: Path) -> None:
    module = Module(tmp_path)
    assert staged(module).changed and not staged(module).changed
    home = tmp_path / "instances/main"
    assert (home / "releases/a-1/compose.yaml").read_text() == "x"
    assert stat.S_IMODE((home / "secrets/api_key").stat().st_mode) == 0o600
    assert not list((home / "releases").glob(".part-*"))


def test_what_a_full_disk_has_left_half_is_taken_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = Module(tmp_path)

    def full(handle: int, owner: int, group: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr("os.fchown", full)
        disk.setattr("os.geteuid", lambda: 0)
        with pytest.raises(OSError, match="No space left"):
            staged(module)
    releases = tmp_path / "instances/main/releases"
    (releases / ".part-killed").mkdir()
    assert staged(module).changed
    assert [each.name for each in releases.iterdir()] == ["a-1"]
    assert [each.name for each in (tmp_path / "instances/main/secrets").iterdir()] == ["api_key"]


def test_a_key_is_in_no_diff(tmp_path: Path) -> None:
    diff = staged(Module(tmp_path, secrets={"api_key": "sk-planted"})).diff
    assert (tmp_path / "instances/main/secrets/api_key").read_text().strip() == "sk-planted"
    assert diff and "sk-planted" not in json.dumps(diff)


def test_what_compose_cannot_read_leaves_nothing(tmp_path: Path) -> None:
    module = Module(tmp_path)
    module.code = 1
    with pytest.raises(SystemExit, match="compose cannot read release a-1: no such service"):
        staged(module)
    assert list((tmp_path / "instances/main/releases").iterdir()) == []


def test_a_release_that_was_changed_is_put_right_and_is_never_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = Module(tmp_path)
    staged(module)
    folder = tmp_path / "instances/main/releases/a-1"
    (folder / "compose.yaml").write_text("tampered")
    seen: list[bool] = []
    real = Path.replace

    def replace(self: Path, target: Path) -> Path:
        seen.append((folder / "release.json").exists())
        return real(self, target)

    monkeypatch.setattr(Path, "replace", replace)
    assert staged(module).changed
    assert (folder / "compose.yaml").read_text() == "x" and all(seen) and seen
    assert not list(folder.parent.glob(".part-*"))
