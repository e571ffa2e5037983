"""sglang-router on two of the hosts: filled by the servers' timers, restarted, and changed one at a time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from rig import HOSTS, ROOT, Played, Rig, run

ROUTERS = HOSTS[:2]
PORT = 30080


def wheels() -> Path:
    """The router's wheels for the hosts' Python, fetched once a lock."""
    import hashlib

    from fastfill.lab import cache

    lock = ROOT / "requirements/router.txt"
    place = cache.folder("packages") / f"router-{hashlib.sha256(lock.read_bytes()).hexdigest()[:12]}-3.13"
    if not place.is_dir():
        words = ["download", "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes"]
        words += ["--only-binary=:all:", "--python-version", "3.13"]
        for tag in ("manylinux_2_34", "manylinux_2_28", "manylinux_2_17", "manylinux2014"):
            words += ["--platform", f"{tag}_x86_64"]
        part = place.with_suffix(".part")
        run(str(ROOT / ".venv/bin/pip"), *words, "--platform", "any", "-d", str(part), "-r", str(lock))
        part.rename(place)
    return place


class Routers:
    """The routers of the rig."""

    def __init__(self, rig: Rig, folder: Path) -> None:
        self.rig, self.inventory = rig, folder / "routers.yml"
        hosts: dict[str, Any] = {host: {} for host in ROUTERS}
        settings = {"router_wheels": str(wheels()), "router_control_key": "control", "server_router_key": "control"}
        groups = {"routers": {"hosts": hosts}, "all": {"vars": settings}}
        self.inventory.write_text(yaml.safe_dump(groups))

    def play(self, *options: str) -> Played:
        """The rollout, with the routers."""
        return self.rig.play("site", "-i", str(self.inventory), *options, release=self.rig.release("good"))

    def workers(self, host: str) -> list[str]:
        """The servers that a router sends requests to."""
        ask = [
            "curl",
            "-sf",
            "-H",
            "Authorization: Bearer control",
            f"http://{self.rig.addresses[host]}:{PORT}/workers",
        ]
        done = run(*ask, check=False)
        listed = json.loads(done.stdout)["workers"] if done.returncode == 0 else []
        return sorted(one["url"] for one in listed if one["is_healthy"])

    def started(self, host: str) -> float:
        """When a router's process began, in seconds since 1970."""
        words = ["systemctl", "show", "--property=ExecMainStartTimestampMonotonic", "--value", "fastfill-router"]
        return int(self.rig.on(host, *words).stdout) / 1e6


@pytest.fixture
def routers(rig: Rig, rolled_out: Played, tmp_path: Path) -> Routers:
    return Routers(rig, tmp_path)


def until(ready: Callable[[], bool], what: str, seconds: float = 60) -> float:
    """Wait for it; returns the seconds."""
    begun = time.monotonic()
    while not ready():
        assert time.monotonic() - begun < seconds, what
        time.sleep(0.5)
    return time.monotonic() - begun


def test_routers_are_filled_refilled_and_changed_one_at_a_time(routers: Routers, record_property) -> None:
    played = routers.play()
    assert played.code == 0, played.text[-6000:]
    wanted = sorted(one["url"] for one in routers.rig.states().values())
    assert len(wanted) == 4
    for host in ROUTERS:
        until(lambda host=host: routers.workers(host) == wanted, f"{host} does not have every server")

    # A restarted router has forgotten everything, until the servers' timers have been there.
    routers.rig.on(ROUTERS[0], "systemctl", "restart", "fastfill-router")
    until(
        lambda: routers.rig.on(ROUTERS[0], "systemctl", "is-active", "fastfill-router", check=False).returncode == 0,
        "-",
    )
    took = until(lambda: routers.workers(ROUTERS[0]) == wanted, "it was not filled again")
    record_property("filled_again_s", round(took, 1))
    assert took < 30

    second = routers.play()
    assert second.code == 0 and second.changed() == dict.fromkeys(HOSTS, 0), second.text[-4000:]

    before = {host: routers.started(host) for host in ROUTERS}
    changed = routers.play("-e", "router_policy=round_robin")
    assert changed.code == 0, changed.text[-4000:]
    after = {host: routers.started(host) for host in ROUTERS}
    assert all(after[host] > before[host] for host in ROUTERS)
    # One clock for all containers: the second began after the first had its servers back.
    assert after[ROUTERS[1]] - after[ROUTERS[0]] > 1
    assert all(routers.workers(host) == wanted for host in ROUTERS)
