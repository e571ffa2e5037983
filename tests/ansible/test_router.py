"""sglang-router on two of the hosts: filled by the servers' timers, restarted, and changed one at a time."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from rig import HOSTS, ROOT, Played, Rig, run, until

from fastfill.fleet import routers as fleet_routers
from fastfill.lab import cache

ROUTERS = HOSTS[:2]
PORT = 30080


def wheels() -> Path:
    """The router's wheels for the hosts' Python, fetched once a lock."""
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
    """The routers of the rig, beside the one that the other tests use."""

    def __init__(self, rig: Rig, folder: Path) -> None:
        self.rig, self.inventory, self.key = rig, folder / "routers.yml", rig.keys["server_router_key"]
        urls = [f"http://{rig.addresses[host]}:{PORT}" for host in ROUTERS]
        settings = {
            "router_wheels": str(wheels()),
            "router_control_key": self.key,
            "fleet_routers": [*rig.settings["fleet_routers"], *urls],
        }
        hosts: dict[str, Any] = {host: {} for host in ROUTERS}
        groups = {"routers": {"hosts": hosts}, "servers": {"vars": settings}}
        self.inventory.write_text(yaml.safe_dump(groups))

    def play(self, *options: str) -> Played:
        """The rollout of what runs already, with the routers."""
        inventories = ("-i", str(self.rig.inventory), "-i", str(self.inventory))
        return self.rig.play("site", *inventories, *options, release=self.rig.current)

    def listed(self, host: str) -> list[fleet_routers.Worker] | None:
        """A router's workers; None where it does not answer."""
        return fleet_routers.workers(f"http://{self.rig.addresses[host]}:{PORT}", self.key)

    def workers(self, host: str) -> list[str]:
        """The servers that a router sends requests to."""
        return sorted(one.url for one in self.listed(host) or [] if one.healthy)

    def started(self, host: str) -> float:
        """When a router's process began, in seconds since 1970."""
        words = ["systemctl", "show", "--property=ExecMainStartTimestampMonotonic", "--value", "fastfill-router"]
        return int(self.rig.on(host, *words).stdout) / 1e6


@pytest.fixture
def routers(rig: Rig, rolled_out: Played, tmp_path: Path) -> Iterator[Routers]:
    assert rolled_out.code == 0, rolled_out.text[-6000:]
    yield Routers(rig, tmp_path)
    for host in ROUTERS:
        rig.on(host, "systemctl", "disable", "--now", "fastfill-router", check=False)
    assert rig.play("site", release=rig.current).code == 0


def test_routers_are_filled_refilled_and_changed_one_at_a_time(routers: Routers, record_property) -> None:
    played = routers.play()
    assert played.code == 0, played.text[-6000:]
    wanted = sorted(one["url"] for one in routers.rig.states().values())
    assert len(wanted) == 4
    for host in ROUTERS:
        until(
            lambda host=host: routers.workers(host) == wanted, 60, lambda host=host: f"{host}: {routers.workers(host)}"
        )

    # A restarted router has forgotten everything, until the servers' timers have been there.
    routers.rig.on(ROUTERS[0], "systemctl", "restart", "fastfill-router")
    begun = time.monotonic()
    until(lambda: routers.listed(ROUTERS[0]) is not None, 60, lambda: "it does not answer", every=0.02)
    assert routers.workers(ROUTERS[0]) == []
    until(lambda: routers.workers(ROUTERS[0]) == wanted, 60, lambda: str(routers.workers(ROUTERS[0])))
    record_property("filled_again_s", round(time.monotonic() - begun, 1))

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
