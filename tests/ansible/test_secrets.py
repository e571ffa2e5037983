"""No key in what a run prints, logs, caches or shows; runs after the others, over what all of them left behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from rig import HOSTS, Played, Rig


@pytest.fixture
def logged(rig: Rig, rolled_out: Played) -> str:
    """What controllers and hosts have kept: ansible's log, facts, journals, the servers' and the fleet's logs."""
    files = [file for file in rig.folder.rglob("*") if file.suffix in (".out", ".log") or file.parent.name == "facts"]
    kept = [file.read_text(errors="replace") for file in files if file.is_file()]
    servers = "for c in $(docker ps --all --quiet); do docker logs $c 2>&1; docker inspect $c; done"
    places = ("lock/*l", "*.json", *(f"instances/*/{name}" for name in ("*.json", "evidence/*", "releases/*/*")))
    fleet = f"cd /var/lib/fastfill && cat {' '.join(places)} instances/*/releases/*/.env /root/.ansible_async/*; true"
    for host in HOSTS:
        kept.append(rig.on(host, "journalctl", "--no-pager", "--output", "cat").stdout)
        kept += [rig.on(host, "sh", "-c", command).stdout for command in (servers, fleet)]
    return "\n".join(kept)


def test_no_key_is_left_anywhere(rig: Rig, logged: str) -> None:
    assert "all proven" in logged and "server_args=" in logged and "FASTFILL_API_KEY_FILE" in logged, "it is all there"
    for name, key in rig.keys.items():
        place = logged.find(key)
        assert place < 0, (name, logged[max(0, place - 300) : place])


def test_no_key_was_on_a_command_line(rig: Rig, rolled_out: Played) -> None:
    assert rig.shown == set()


def test_a_new_key_is_in_no_diff(rig: Rig, rolled_out: Played, tmp_path: Path) -> None:
    inventory = rig.write(tmp_path / "hosts.yml", server_api_key="a-new-api-key", server_router_key="a-new-router-key")
    played = rig.play("site", "-i", str(inventory), "--check", "--diff", "-vvv", release=rig.current)
    assert played.code == 0 and all(played.changed().values()), played.text[-3000:]
    for key in ("a-new-api-key", "a-new-router-key", *rig.keys.values()):
        assert key not in played.text


def test_keys_are_for_their_reader_alone(rig: Rig, rolled_out: Played) -> None:
    listed = "stat -c '%a %u %n' /var/lib/fastfill/instances/*/secrets/*"
    shown = rig.on(HOSTS[2], "sh", "-c", listed).stdout.splitlines()
    assert len(shown) == 6 and all(line.startswith("600 1000 ") for line in shown), shown
