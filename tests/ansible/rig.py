"""Hosts to roll out to, and the playbooks as an operator runs them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
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
        self.inventory = folder / "hosts.yml"
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
        }
        self.inventory.write_text(yaml.safe_dump({"servers": {"hosts": hosts, "vars": settings}}))

    def release(self, name: str, **more: Any) -> dict[str, Any]:
        """A release of the lab."""
        known = {"name": name, "image": "fastfill-lab:latest", "image_id": self.image_id, "archive": str(self.archive)}
        return {**known, "compose": ["compose.lab.yaml"], **more}

    def play(self, book: str, *options: str, release: dict[str, Any] | None = None, timeout: float = 900) -> Played:
        """Run a playbook from the checkout, as the README says."""
        begun = time.monotonic()
        argv = [str(ROOT / ".venv/bin/ansible-playbook"), "-i", str(self.inventory), f"ansible/{book}.yml", *options]
        if release is not None:
            file = self.folder / f"{release['name']}.json"
            file.write_text(json.dumps({"fleet_release": release}))
            argv += ["-e", f"@{file}"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout, check=False, cwd=ROOT)
        return Played(done.returncode, done.stdout + done.stderr, time.monotonic() - begun)

    def on(self, host: str, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """A command on a host."""
        return run("docker", "exec", host, *words, check=check)

    def states(self) -> dict[str, dict[str, Any]]:
        """HOST/INSTANCE to what the host says of it."""
        found = {}
        for host in HOSTS:
            answer = json.loads(self.on(host, *TOOL, "status").stdout)
            found |= {f"{host}/{one['name']}": one for one in answer["instances"]}
        return found

    def audit(self) -> list[dict[str, Any]]:
        """The audit log."""
        return list(json.loads(self.on(HOSTS[0], *TOOL, "audit", "--last", "500").stdout)["entries"])


def untouched(before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]], but: str) -> None:
    """Every server but those of one host runs as it did: the same container since the same moment."""
    for name, one in before.items():
        if not name.startswith(f"{but}/"):
            assert (after[name]["container"], after[name]["started"]) == (one["container"], one["started"]), name
