"""The roles' variables: each has a default, a type and a row in the README; a wrong type is refused in its words."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ANSIBLE = Path(__file__).parents[2] / "ansible"
ROLES = sorted(path.name for path in (ANSIBLE / "roles").iterdir())


def test_the_tables_are_made_from_the_roles() -> None:
    argv = [sys.executable, str(ANSIBLE / "role_tables.py"), "--check"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("role", ROLES)
def test_every_default_is_specified_and_every_option_has_one(role: str) -> None:
    folder = ANSIBLE / "roles" / role
    spec = yaml.safe_load((folder / "meta/argument_specs.yml").read_text())["argument_specs"]["main"]
    defaults = yaml.safe_load((folder / "defaults/main.yml").read_text())
    assert set(defaults) == set(spec.get("options", {}))
    assert all(name.startswith(f"{role}_") for name in defaults)
    known = {"type", "description", "required", "elements", "options", "choices"}
    for name, option in spec.get("options", {}).items():
        # A comma in a flow mapping ends a value that has no quotes.
        assert set(option) <= known, (name, option)


@pytest.mark.parametrize("setting", ["fleet_drain_timeout=soon", "preflight_gpus=many"])
def test_a_wrong_type_is_refused_in_the_roles_own_words(setting: str, tmp_path: Path) -> None:
    role = setting.partition("_")[0]
    play = [{"hosts": "servers", "gather_facts": False, "roles": [{"role": str(ANSIBLE / "roles" / role)}]}]
    book = tmp_path / "play.yml"
    book.write_text(yaml.safe_dump(play))
    hosts = tmp_path / "hosts.ini"
    hosts.write_text("[servers]\nlocalhost ansible_connection=local\n")
    release = '{"fleet_release": {"name": "x", "image": "x"}}'
    argv = [
        sys.executable,
        "-m",
        "ansible.cli.playbook",
        "-i",
        str(hosts),
        "-e",
        release,
        "-e",
        setting,
    ]
    done = subprocess.run([*argv, str(book)], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2
    name = setting.partition("=")[0]
    assert re.search(f"argument '{name}' is of type .*unable to convert to int", done.stdout), done.stdout[-2000:]
