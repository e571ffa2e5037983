"""sglang-router on two of the hosts: filled by the servers' timers, restarted, changed one by one, behind HAProxy."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import router_process
import yaml
from rig import HOSTS, ROOT, Played, Rig, run, until

from fastfill.fleet import routers as fleet_routers
from fastfill.lab import cache

ROUTERS = HOSTS[:2]
PORT = 30080
CERTIFICATE = "/etc/ssl/fastfill-router.pem"
TRUSTED = "/usr/local/share/ca-certificates/fastfill-test.crt"


def wheels() -> Path:
    """The router's wheels for the hosts' Python, fetched once a lock."""
    place = cache.folder("packages") / f"{router_process.locked()}-3.13"
    if not place.is_dir():
        words = ["download", "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes"]
        words += ["--only-binary=:all:", "--python-version", "3.13"]
        for tag in ("manylinux_2_34", "manylinux_2_28", "manylinux_2_17", "manylinux2014"):
            words += ["--platform", f"{tag}_x86_64"]
        part = place.with_suffix(".part")
        run(str(ROOT / ".venv/bin/pip"), *words, "--platform", "any", "-d", str(part), "-r", str(router_process.LOCK))
        part.rename(place)
    return place


class Routers:
    """The routers of the rig, beside the one that the other tests use."""

    def __init__(self, rig: Rig, folder: Path) -> None:
        self.rig, self.inventory, self.key = rig, folder / "routers.yml", rig.keys["server_router_key"]
        self.configure()

    def configure(self, scheme: str = "http", **more: Any) -> None:
        """Write the inventory of the routers, with more of the role's settings."""
        settings = {
            "router_wheels": str(wheels()),
            "router_control_key": self.key,
            "fleet_routers": [*self.rig.settings["fleet_routers"], *(self.url(host, scheme) for host in ROUTERS)],
            **more,
        }
        groups = {"routers": {"hosts": {host: {} for host in ROUTERS}}, "servers": {"vars": settings}}
        self.inventory.write_text(yaml.safe_dump(groups))

    def url(self, host: str, scheme: str = "http") -> str:
        """Of the router on a host."""
        return f"{scheme}://{self.rig.addresses[host]}:{PORT}"

    def play(self, *options: str) -> Played:
        """The rollout of what runs already, with the routers."""
        inventories = ("-i", str(self.rig.inventory), "-i", str(self.inventory))
        return self.rig.play("site", *inventories, *options, release=self.rig.current)

    def listed(self, host: str) -> list[fleet_routers.Worker] | None:
        """A router's workers; None where it does not answer."""
        return fleet_routers.workers(self.url(host), self.key)

    def workers(self, host: str) -> list[str]:
        """The servers that a router sends requests to."""
        return sorted(one.url for one in self.listed(host) or [] if one.healthy)

    def started(self, host: str) -> float:
        """When a router's process began, in seconds since the machine did."""
        words = ["systemctl", "show", "--property=ExecMainStartTimestampMonotonic", "--value", "fastfill-router"]
        return int(self.rig.on(host, *words).stdout) / 1e6


@pytest.fixture
def routers(rig: Rig, rolled_out: Played, tmp_path: Path) -> Iterator[Routers]:
    assert rolled_out.code == 0, rolled_out.text[-6000:]
    yield Routers(rig, tmp_path)
    for host in ROUTERS:
        rig.on(host, "systemctl", "disable", "--now", "fastfill-router", "fastfill-router-front", check=False)
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


class Front:
    """What clients see of the routers once HAProxy stands before them."""

    def __init__(self, routers: Routers, folder: Path) -> None:
        self.routers = routers
        names = ",".join(f"IP:{routers.rig.addresses[host]}" for host in ROUTERS)
        words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=routers", "-days", "2"]
        words += ["-addext", f"subjectAltName={names}", "-keyout", str(folder / "key"), "-out", str(folder / "cert")]
        run(*words)
        (folder / "pem").write_text((folder / "cert").read_text() + (folder / "key").read_text())
        for host in HOSTS:
            run("docker", "cp", "-q", str(folder / "cert"), f"{host}:{TRUSTED}")
            routers.rig.on(host, "update-ca-certificates")
        for host in ROUTERS:
            run("docker", "cp", "-q", str(folder / "pem"), f"{host}:{CERTIFICATE}")
        self.trust = ssl.create_default_context(cafile=str(folder / "cert"))

    def configure(self, *keys: str) -> None:
        """The clients' keys."""
        self.routers.configure("https", router_tls_cert=CERTIFICATE, router_client_keys=list(keys))

    def ask(self, host: str, path: str, key: str = "", body: dict[str, Any] | None = None) -> httpx.Response:
        """A request through a router of the hosts; with a body it is a POST."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        with httpx.Client(verify=self.trust, trust_env=False, timeout=60) as http:
            url = self.routers.url(host, "https") + path
            return http.request("GET" if body is None else "POST", url, headers=headers, json=body)

    def complete(self, host: str, key: str) -> int:
        """The status of a completion."""
        body = {"model": "lab", "prompt": f"{time.monotonic_ns()}: tell me", "max_tokens": 2}
        return self.ask(host, "/v1/completions", key, body).status_code

    def workers(self, host: str) -> list[str]:
        """The servers that a router sends requests to."""
        reply = self.ask(host, "/workers", self.routers.key)
        assert reply.status_code == 200, reply.text
        return sorted(one["url"] for one in reply.json()["workers"] if one["is_healthy"])


@pytest.fixture
def front(routers: Routers, tmp_path: Path) -> Iterator[Front]:
    yield Front(routers, tmp_path)
    for host in HOSTS:
        routers.rig.on(host, "rm", "-f", TRUSTED, CERTIFICATE)
        routers.rig.on(host, "update-ca-certificates", "--fresh")


def test_tls_and_the_clients_keys_end_in_haproxy(routers: Routers, front: Front) -> None:
    front.configure("old-client-key")
    played = routers.play()
    assert played.code == 0, played.text[-6000:]
    wanted = sorted(one["url"] for one in routers.rig.states().values())
    for host in ROUTERS:
        until(lambda host=host: front.workers(host) == wanted, 60, lambda host=host: str(front.workers(host)))
        assert [front.complete(host, key) for key in ("old-client-key", "", "wrong")] == [200, 401, 401]

    # What is old and what is new hold together, and neither router is restarted for it.
    begun = {host: routers.started(host) for host in ROUTERS}
    front.configure("old-client-key", "new-client-key")
    changed = routers.play()
    assert changed.code == 0, changed.text[-4000:]
    for host in ROUTERS:
        assert [front.complete(host, key) for key in ("old-client-key", "new-client-key", "wrong")] == [200, 200, 401]
    assert {host: routers.started(host) for host in ROUTERS} == begun
    assert "client-key" not in played.text + changed.text

    again = routers.play()
    assert again.code == 0 and again.changed() == dict.fromkeys(HOSTS, 0), again.text[-4000:]
