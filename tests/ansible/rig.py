"""Hosts to roll out to, and the playbooks as an operator runs them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
HOSTS = ("ffhost1", "ffhost2", "ffhost3")
STATE = Path(
    os.environ.get("FASTFILL_HOSTS")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fastfill/hosts"
)
CURRENT = STATE / "current.json"
TOOL = ("python3", "/var/lib/fastfill/tool/fleet.pyz")
PORT = 35000


@dataclass
class Played:
    """A playbook that ended."""

    code: int
    text: str
    seconds: float

    def changed(self) -> dict[str, int]:
        """Host to the number of changed tasks."""
        return {host: int(count) for host, count in re.findall(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)", self.text, re.M)}

    def failed(self) -> dict[str, int]:
        """Host to the number of failed tasks."""
        return {host: int(count) for host, count in re.findall(r"^(\S+)\s+: .*failed=(\d+)", self.text, re.M)}


@dataclass
class Playing:
    """A playbook that runs."""

    process: subprocess.Popen[bytes]
    file: Path

    def text(self) -> str:
        """What it has said so far."""
        return self.file.read_text(encoding="utf-8", errors="replace")

    def reaches(self, words: str, seconds: float = 300) -> None:
        """Wait until it says something."""
        until(lambda: words in self.text(), seconds, lambda: f"never said {words!r}: {self.text()[-3000:]}")

    def ends(self, seconds: float = 600) -> Played:
        """Wait until it has ended."""
        code = self.process.wait(seconds)
        return Played(code, self.text(), 0.0)

    def kill(self) -> None:
        """Kill it and all its workers, at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)


def until(so: Callable[[], bool], seconds: float, why: Callable[[], str], every: float = 0.5) -> None:
    """Wait until it is so."""
    end = time.monotonic() + seconds
    while not so():
        assert time.monotonic() < end, why()
        time.sleep(every)


def run(*argv: str, check: bool = True, timeout: float = 600) -> subprocess.CompletedProcess[str]:
    """A command with its output as text; a failure shows the end of it."""
    done = subprocess.run(
        argv, capture_output=True, text=True, errors="replace", timeout=timeout, check=False, cwd=ROOT
    )
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(argv)}: exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}")
    return done


class Rig:
    """Three hosts and an inventory.

    Args:
        folder: For the inventory and the releases.
        lines: What hosts.sh printed.
        image_id: Of the lab image.
        archive: The lab image, saved.
    """

    def __init__(self, folder: Path, lines: list[str], image_id: str, archive: Path) -> None:
        self.folder, self.image_id, self.archive = folder, image_id, archive
        self.addresses = {line.split()[0]: line.partition("ansible_host=")[2].strip() for line in lines}
        # This machine, as the hosts see it.
        self.gateway = self.addresses[HOSTS[0]].rpartition(".")[0] + ".1"
        self.inventory = folder / "hosts.yml"
        # The same in each session with these hosts: a server that runs on keeps the keys that it was started with.
        self.keys: dict[str, str] = {
            name: f"ff-{name}-" + hashlib.sha256((STATE / "id").read_bytes() + name.encode()).hexdigest()[:24]
            for name in ("server_api_key", "server_admin_api_key", "server_router_key")
        }
        one = [{"name": "main", "port": PORT}]
        hosts: dict[str, Any] = {
            host: {"ansible_host": address, "fleet_instances": one} for host, address in self.addresses.items()
        }
        hosts[HOSTS[2]]["fleet_instances"] = [{"name": "left", "port": PORT}, {"name": "right", "port": PORT + 1}]
        settings = {
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(STATE / "id"),
            "ansible_python_interpreter": "/usr/bin/python3",
            "ansible_ssh_common_args": f"-o UserKnownHostsFile={STATE / 'known_hosts'}",
            "preflight_gpu": False,
            "preflight_memory_gb": 4,
            "preflight_free_gb": 5,
            "fleet_min_capacity": "50 %",
            "fleet_soak_seconds": 0,
            "fleet_start_timeout": 400,
            "server_secret_owner": 1000,
            **self.keys,
        }
        self.hosts, self.settings = hosts, settings
        self.shown: set[str] = set()
        self.write(self.inventory)
        # What every server runs, for the tests that leave it so; hosts that were kept run what the last session left.
        self.current = self.release("good")
        if CURRENT.is_file():
            self.current |= json.loads(CURRENT.read_text())

    def leaves(self, release: dict[str, Any]) -> None:
        """From now on every server runs this release of :meth:`release`."""
        self.current = release
        own = {key: value for key, value in release.items() if key not in ("image_id", "archive")}
        CURRENT.write_text(json.dumps(own))

    def write(self, file: Path, instances: dict[str, dict[str, Any]] | None = None, **settings: Any) -> Path:
        """An inventory: with the settings of some hosts' first servers, and of all hosts, changed."""
        hosts = json.loads(json.dumps(self.hosts))
        for host, changed in (instances or {}).items():
            hosts[host]["fleet_instances"][0]["settings"] = changed
        everywhere = {**self.settings, **settings}
        file.write_text(yaml.safe_dump({"servers": {"hosts": hosts, "vars": everywhere}}))
        return file

    def release(self, name: str, **more: Any) -> dict[str, Any]:
        """A release of the lab."""
        known = {"name": name, "image": "fastfill-lab:latest", "image_id": self.image_id, "archive": str(self.archive)}
        return {**known, "compose": ["compose.lab.yaml"], **more}

    def argv(self, book: str, *options: str, release: dict[str, Any] | None = None) -> list[str]:
        """The command of a playbook, as the README says it; an inventory among the options goes before ours."""
        given = [] if "-i" in options else ["-i", str(self.inventory)]
        argv = [str(ROOT / ".venv/bin/ansible-playbook"), *given, f"ansible/{book}.yml", *options]
        if release is not None:
            file = self.folder / f"{release['name']}.json"
            file.write_text(json.dumps({"fleet_release": release}))
            argv += ["-e", f"@{file}"]
        return argv

    def environment(self) -> dict[str, str]:
        """Facts are cached, as many controllers have it."""
        cache = {"ANSIBLE_CACHE_PLUGIN": "jsonfile", "ANSIBLE_CACHE_PLUGIN_CONNECTION": str(self.folder / "facts")}
        return {**os.environ, **cache, "ANSIBLE_LOG_PATH": str(self.folder / "ansible.log")}

    def play(self, book: str, *options: str, release: dict[str, Any] | None = None, timeout: float = 900) -> Played:
        """Run a playbook from the checkout."""
        begun = time.monotonic()
        argv = self.argv(book, *options, release=release)
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=timeout, check=False, cwd=ROOT, env=self.environment()
        )
        return Played(done.returncode, done.stdout + done.stderr, time.monotonic() - begun)

    @contextlib.contextmanager
    def playing(self, book: str, *options: str, release: dict[str, Any] | None = None) -> Iterator[Playing]:
        """A playbook while it runs; what still runs at the end is killed, as a controller that dies."""
        file = self.folder / f"{book}.{time.monotonic_ns()}.out"
        argv = self.argv(book, *options, release=release)
        with file.open("wb") as out:
            process = subprocess.Popen(
                argv, stdout=out, stderr=out, cwd=ROOT, env=self.environment(), start_new_session=True
            )
        one = Playing(process, file)
        try:
            yield one
        finally:
            one.kill()

    def on(self, host: str, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """A command on a host."""
        return run("docker", "exec", host, *words, check=check)

    def states(self, *hosts: str) -> dict[str, dict[str, Any]]:
        """HOST/INSTANCE to what the host says of it; of all hosts, or of some."""
        found = {}
        for host in hosts or HOSTS:
            answer = json.loads(self.on(host, *TOOL, "status").stdout)
            found |= {f"{host}/{one['name']}": one for one in answer["instances"]}
        return found

    def audit(self) -> list[dict[str, Any]]:
        """The audit log."""
        return list(json.loads(self.on(HOSTS[0], *TOOL, "audit", "--last", "500").stdout)["entries"])


def serves(state: dict[str, Any]) -> bool:
    """Whether a server serves what is proven on it, owned by systemd and in the routers."""
    fine = state["serving"] and state["in_service"] and state["drift"] == []
    return bool(fine and state["runs"] == state["proven"])


def untouched(before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]], *but: str) -> None:
    """Every server but those of some hosts runs as it did: the same container since the same moment."""
    for name, one in before.items():
        if name.partition("/")[0] not in but:
            assert (after[name]["container"], after[name]["started"]) == (one["container"], one["started"]), name
