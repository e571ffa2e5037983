"""A task that a host goes on with alone: its end is told, and so is that nobody works on it any more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import yaml

PLUGINS = Path(__file__).parents[2] / "ansible/roles/fleet/action_plugins"
KILL = "grep -ls '[{{ number[:1] }}]{{ number[1:] }}' /proc/[0-9]*/cmdline | cut -d/ -f3 | xargs kill -9"


def play(folder: Path, words: list[str], *between: dict, seconds: int = 30) -> subprocess.CompletedProcess[str]:
    """Start a command on this machine, do something, wait for the command, and say what came of it."""
    tasks: list[dict] = [
        {"command": {"argv": words}, "async": 60, "poll": 0, "register": "begun"},
        *between,
        {"fleet_wait": {"jid": "{{ begun.ansible_job_id }}", "seconds": seconds, "every": 0.2}, "register": "ended"},
        {"debug": {"msg": "it said {{ ended.stdout }}, finished {{ ended.finished }}"}},
    ]
    (folder / "play.yml").write_text(yaml.safe_dump([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
    argv = [sys.executable, "-m", "ansible.cli.playbook", "-i", "localhost,", "-c", "local"]
    argv += ["-e", f"ansible_python_interpreter={sys.executable}", str(folder / "play.yml")]
    env = {**os.environ, "ANSIBLE_ACTION_PLUGINS": str(PLUGINS), "ANSIBLE_ASYNC_DIR": str(folder / "jobs")}
    return subprocess.run(argv, capture_output=True, text=True, check=False, cwd=folder, env=env, timeout=120)


def test_it_waits_for_the_end_and_hands_on_what_was_said(tmp_path: Path) -> None:
    done = play(tmp_path, ["sh", "-c", "sleep 1; echo fine"])
    assert done.returncode == 0 and "it said fine, finished True" in done.stdout, done.stdout + done.stderr
    assert "fleet_wait: localhost ..." in done.stdout, "who waits is told"


def test_a_failure_is_one_here_too(tmp_path: Path) -> None:
    done = play(tmp_path, ["sh", "-c", "echo why >&2; exit 3"])
    assert done.returncode != 0 and "why" in done.stdout and "it said" not in done.stdout


def test_a_job_that_is_gone_without_a_word_is_told_at_once(tmp_path: Path) -> None:
    """As after the host was restarted: the job's file says for ever that it has started."""
    gone = {"shell": KILL, "vars": {"number": "{{ begun.ansible_job_id.split('.')[0][1:] }}"}}
    done = play(tmp_path, ["sleep", "50"], {"pause": {"seconds": 1}}, gone)
    assert done.returncode != 0 and "it ended without a word" in done.stdout, done.stdout + done.stderr


def test_one_that_takes_too_long_is_told(tmp_path: Path) -> None:
    done = play(tmp_path, ["sleep", "8"], seconds=1)
    assert done.returncode != 0 and "it has not ended after 1 s" in done.stdout, done.stdout + done.stderr
