"""The roles' variables: each has a default, a type and a row in the README; a wrong type is refused in its words."""

from __future__ import annotations

import os
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


def test_a_host_that_is_lost_in_its_turn_reports_so(tmp_path: Path) -> None:
    """Dropped from the play it would take the batch's verdict, and whoever gives the lock back, with it."""
    one = {"server_one": {"name": "main"}, "server_target": "x-1", "server_options": []}
    fence = {"fleet_fence": ["--rollout", "a", "--epoch", "1"]}
    tasks = [
        {"ansible.builtin.import_role": {"name": "fleet", "tasks_from": "names.yml"}},
        {"ansible.builtin.set_fact": {"server_report": {"outcome": "unchanged", "why": "", "servers": []}, **fence}},
        {"ansible.builtin.include_role": {"name": "server", "tasks_from": "switch.yml"}, "vars": one},
        {"ansible.builtin.debug": {"msg": "{{ server_report.outcome }}: {{ server_report.why }}"}},
    ]
    book, hosts = tmp_path / "play.yml", tmp_path / "hosts.ini"
    book.write_text(yaml.safe_dump([{"hosts": "servers", "gather_facts": False, "tasks": tasks}]))
    hosts.write_text("[servers]\nghost ansible_host=127.0.0.1 ansible_port=1\n")
    argv = [sys.executable, "-m", "ansible.cli.playbook", "-i", str(hosts), str(book)]
    places = {"ANSIBLE_ROLES_PATH": str(ANSIBLE / "roles"), "ANSIBLE_FILTER_PLUGINS": str(ANSIBLE / "filter_plugins")}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=tmp_path, env={**os.environ, **places})
    assert "unreachable: main: it stopped answering in its turn" in done.stdout, done.stdout[-3000:]
