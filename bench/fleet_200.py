"""What a run that changes nothing costs the controller: 1, 3 and 200 hosts, over ssh.

    python bench/fleet_200.py [--runs site:1 site:3 status:200 ...] [--forks 50] [--out results/fleet-200.json]

The hosts are network namespaces with an sshd each, on this machine; stand-ins take the place of Docker, systemd and the
servers. So their work is in the time as well, on the same cores; a cluster's hosts do theirs by themselves. Needs root.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import stamp
import standins
import yaml
from namespaces import Namespaces, run

ROOT = stamp.ROOT
PORT = 30000
BOOKS = {
    "site": "the whole rollout, on hosts that run and have proven what is wanted",
    "status": "what runs where",
}
CHANGED = ("/var/lib/fastfill", "/var/lib/docker", "/var/lib/prometheus", "/etc/systemd/system", "/etc/docker")
"""What a rollout leaves on a host."""
RUNS = ("status:1", "site:1", "status:3", "site:3", "status:200")
SOURCES = [*(f"bench/{name}.py" for name in ("fleet_200", "namespaces", "standins")), "ansible.cfg"]
"""How it is measured. What is measured is named by its commit: playbooks change daily, and a task more is no news."""


class Bench:
    """The hosts and the inventory.

    Args:
        folder: For both.
        count: Hosts.
        forks: Of ansible-playbook.
    """

    def __init__(self, folder: Path, count: int, forks: int) -> None:
        self.folder, self.forks = folder, forks
        self.hosts = Namespaces(folder / "hosts", count)

    def up(self) -> None:
        """Start the hosts; the first is rolled out to, and the others are as it is then."""
        self.hosts.up(prepare=lambda name: standins.install(self.hosts.bin(name)))
        for name in self.hosts.names:
            standins.answer(standins.listen(self.hosts.namespace(name), self.hosts.address(name), PORT))
        first, *others = self.hosts.names
        code, text, *_ = self.play("site", [first])
        if code != 0:
            raise RuntimeError(f"the first host could not be rolled out to:\n{text[-4000:]}")
        for name in others:
            self.hosts.stop(name)
            for place in CHANGED:
                source, target = self.hosts.own(first, place), self.hosts.own(name, place)
                shutil.rmtree(target, ignore_errors=True)
                if source.is_dir():
                    shutil.copytree(source, target, symlinks=True)
            for file in self.hosts.own(name, "/var/lib/fastfill/instances").glob("*/instance.json"):
                file.write_text(file.read_text().replace(self.hosts.address(first), self.hosts.address(name)))
            for file in self.hosts.own(name, "/var/lib/fastfill/instances").glob("*/releases/*/compose.release.yaml"):
                file.write_text(file.read_text().replace(self.hosts.address(first), self.hosts.address(name)))
            for file in self.hosts.own(name, "/etc/systemd/system").glob("*"):
                if file.is_file():
                    file.write_text(file.read_text().replace(first, name))
            self.hosts.start(name)
        self.hosts.wait()

    def inventory(self, names: list[str]) -> Path:
        """For some of the hosts."""
        hosts = {name: {"ansible_host": self.hosts.address(name)} for name in names}
        settings: dict[str, Any] = {
            **self.hosts.settings(),
            "fleet_instances": [{"name": "main", "port": PORT}],
            "fleet_soak_seconds": 0,
            "fleet_allow_outage": True,
            "engine_install": False,
            "preflight_gpu": False,
            "preflight_free_gb": 0,
            "preflight_memory_gb": 0,
        }
        file = self.folder / "inventory.yml"
        file.write_text(yaml.safe_dump({"servers": {"hosts": hosts, "vars": settings}}))
        return file

    def play(self, book: str, names: list[str]) -> tuple[int, str, float, float]:
        """Run a playbook on some of the hosts.

        Returns:
            Its exit code, what it said, the seconds, and the controller's peak memory in MB.
        """
        release = {
            "name": "bench",
            "image": "fastfill-bench",
            "image_id": standins.IMAGE_ID,
            "compose": ["compose.lab.yaml"],
        }
        (self.folder / "release.json").write_text(json.dumps({"fleet_release": release}))
        argv = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", str(self.inventory(names))]
        argv += ["-f", str(self.forks), f"ansible/{book}.yml"]
        argv += ["-e", f"@{self.folder / 'release.json'}"] if book == "site" else []
        begun = time.monotonic()
        with (self.folder / "log").open("w+") as log:
            started = subprocess.Popen(self.hosts.inside(*argv), stdout=log, stderr=subprocess.STDOUT, cwd=ROOT)
            with Memory(lambda: self.hosts.processes(self.hosts.controller)) as memory:
                code = started.wait()
            seconds = time.monotonic() - begun
            log.seek(0)
            return code, log.read(), seconds, memory.peak_mb

    def measure(self, book: str, count: int) -> dict[str, Any]:
        """One run that changes nothing.

        Raises:
            RuntimeError: It failed, or changed something.
        """
        names = self.hosts.names[:count]
        code, text, seconds, memory = self.play(book, names)
        recap = dict(re.findall(r"^(host\d+)\s+: ok=\d+\s+changed=(\d+)", text, re.MULTILINE))
        if code != 0 or recap != dict.fromkeys(names, "0"):
            raise RuntimeError(f"{book} on {count} hosts: exit {code}, or something changed:\n{text[-5000:]}")
        return {
            "playbook": f"{book}.yml",
            "hosts": count,
            "forks": self.forks,
            "seconds": round(seconds, 1),
            "controller_peak_mb": round(memory),
        }


class Memory(threading.Thread):
    """The most memory that some processes hold together, each page counted once (PSS), looked at twice a second.

    Args:
        pids: Gives them.
    """

    def __init__(self, pids: Callable[[], list[int]]) -> None:
        super().__init__(daemon=True)
        self.pids, self.done, self.peak_mb = pids, threading.Event(), 0.0

    def run(self) -> None:
        """Look until it is over."""
        while not self.done.wait(0.5):
            total = 0
            for pid in self.pids():
                try:
                    total += psutil.Process(pid).memory_full_info().pss
                except psutil.Error:
                    continue
            self.peak_mb = max(self.peak_mb, total / 1e6)

    def __enter__(self) -> Memory:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.done.set()
        self.join()


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", nargs="+", default=RUNS, help="PLAYBOOK:HOSTS")
    parser.add_argument("--forks", type=int, default=50)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    runs = [(book, int(hosts)) for book, _, hosts in (one.partition(":") for one in asked.runs)]
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), max(hosts for _, hosts in runs), asked.forks)
        try:
            bench.up()
            rows = []
            for book, count in runs:
                rows.append(bench.measure(book, count))
                print(json.dumps(rows[-1]), flush=True)
        finally:
            bench.hosts.down()
    if asked.out:
        stamp.write(
            asked.out,
            "fastfill.fleet-no-change/1",
            "python bench/fleet_200.py --out results/fleet-200.json",
            SOURCES,
            commit=run("git", "-C", str(ROOT), "rev-parse", "HEAD").strip(),
            cores=os.cpu_count(),
            where="hosts and controller on one machine, in namespaces; stand-ins for Docker, systemd and servers",
            playbooks=BOOKS,
            rows=rows,
        )


if __name__ == "__main__":
    main()
