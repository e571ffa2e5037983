"""A model's weights from one host to the others, by real rsync over real ssh, between hosts in network namespaces."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import programs
import pytest
import yaml

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from namespaces import Namespaces, namespaces

from fastfill.fleet import bundle
from fastfill.lab import prepare, stacks

COUNT = 5
NAME, REVISION = "lab-dense", "5" * 40
SKIPPED = "SKIPPED {{ inventory_hostname }} {{ ansible_failed_result.msg }}"
PLACE = f"/srv/models/{NAME}/{REVISION}"
BIG = "extra.bin"
BOOK = [
    {
        "hosts": "servers",
        "gather_facts": False,
        "tasks": [
            {"ansible.builtin.file": {"path": "/var/lib/fastfill/tool", "state": "directory", "mode": "0755"}},
            {"ansible.builtin.copy": {"src": "{{ pyz }}", "dest": "/var/lib/fastfill/tool/fleet.pyz", "mode": "0755"}},
            {"ansible.builtin.import_role": {"name": "fleet", "tasks_from": "variables.yml"}},
            {
                "block": [{"ansible.builtin.import_role": {"name": "model"}}],
                "rescue": [{"ansible.builtin.debug": {"msg": SKIPPED}}],
            },
        ],
    }
]


def fetched(folder: Path) -> None:
    """The lab's model as `fastfill model fetch` leaves one, and a file that takes a while to copy."""
    python, _ = prepare.interpreter_of(stacks.DEFAULT)
    shutil.copytree(prepare.model_folder("dense", python, folder.parent), folder)
    (folder / BIG).write_bytes(os.urandom(40 << 20))
    for file in [each for each in folder.rglob("*") if each.is_file()]:
        record = folder / ".cache/huggingface/download" / f"{file.relative_to(folder)}.metadata"
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(f"{REVISION}\n{hashlib.sha256(file.read_bytes()).hexdigest()}\n1.0\n")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "model"
    fetched(folder)
    return folder


class Cluster:
    """Five hosts, and the role on them."""

    def __init__(self, hosts: Namespaces, folder: Path) -> None:
        self.hosts, self.folder = hosts, folder
        bundle.write(folder / "fleet.pyz")
        (folder / "play.yml").write_text(yaml.safe_dump(BOOK))

    def give(self, model: Path, name: str = "host001") -> Path:
        """The model on one host."""
        place = self.hosts.own(name, PLACE)
        shutil.copytree(model, place)
        return place

    def start(self, *options: str, **more: Any) -> subprocess.Popen[str]:
        """Run the role."""
        inventory = {
            "servers": {
                "hosts": {name: {"ansible_host": self.hosts.address(name)} for name in self.hosts.names},
                "vars": {
                    **self.hosts.settings(),
                    "pyz": str(self.folder / "fleet.pyz"),
                    "fleet_release": {"name": "x", "image": "x", "image_id": "sha256:" + "0" * 64},
                    "model_name": NAME,
                    "model_revision": REVISION,
                    "model_packages": [],
                    "model_ssh_host_key": f"{self.hosts.keys}/host.pub",
                    **more,
                },
            }
        }
        (self.folder / "hosts.yml").write_text(yaml.safe_dump(inventory))
        argv = [sys.executable, "-m", "ansible.cli.playbook", "-i", str(self.folder / "hosts.yml"), *options]
        environment = os.environ | {
            "ANSIBLE_ROLES_PATH": str(ROOT / "ansible/roles"),
            "ANSIBLE_FILTER_PLUGINS": str(ROOT / "ansible/filter_plugins"),
            "ANSIBLE_PIPELINING": "1",
        }
        return subprocess.Popen(
            self.hosts.inside(*argv, str(self.folder / "play.yml")),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )

    def play(self, *options: str, **more: Any) -> tuple[int, str]:
        """Run the role to its end."""
        started = self.start(*options, **more)
        text, _ = started.communicate(timeout=500)
        return started.returncode, text

    def has(self) -> list[str]:
        """The hosts where it has appeared."""
        return [name for name in self.hosts.names if self.hosts.own(name, PLACE).is_dir()]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    programs.need("rsync", "sshd")
    with namespaces(tmp_path / "hosts", COUNT) as hosts:
        yield Cluster(hosts, tmp_path)


def same(left: Path, right: Path) -> bool:
    """Whether two folders hold the same files."""

    def files(folder: Path) -> dict[str, str]:
        found = (each for each in folder.rglob("*") if each.is_file())
        return {str(each.relative_to(folder)): hashlib.sha256(each.read_bytes()).hexdigest() for each in found}

    return files(left) == files(right)


def test_every_host_gets_it_and_a_second_run_changes_nothing(cluster: Cluster, model: Path) -> None:
    code, text = cluster.play()
    assert code == 0 and f"no host has {PLACE}" in text and "fastfill model fetch --into" in text, text[-3000:]
    cluster.give(model)
    code, text = cluster.play("--check")
    assert code == 0 and text.count("would copy") == COUNT - 1 and cluster.has() == ["host001"], text[-3000:]
    code, text = cluster.play()
    assert code == 0 and "SKIPPED" not in text, text[-4000:]
    assert cluster.has() == cluster.hosts.names
    for name in cluster.hosts.names:
        assert same(cluster.hosts.own(name, PLACE), model)
        # No door stays open, and no key behind.
        keys = cluster.hosts.own(name, "/root/.ssh/authorized_keys")
        assert not keys.exists() or keys.read_text().strip() == ""
        assert not cluster.hosts.own(name, "/var/lib/fastfill/models/copy").exists()
        assert list(cluster.hosts.own(name, f"/srv/models/{NAME}").glob(".*.part")) == []
    code, text = cluster.play()
    assert code == 0 and text.count("changed=0") == COUNT, text[-2000:]


def test_a_copy_that_was_cut_off_is_continued(cluster: Cluster, model: Path) -> None:
    cluster.give(model)
    begun = cluster.start(model_bandwidth="2m")
    part = cluster.hosts.own("host002", f"/srv/models/{NAME}/.{REVISION}.part/{BIG}")
    end = time.monotonic() + 240
    while not part.is_file() or part.stat().st_size < 16_000_000:
        assert time.monotonic() < end and begun.poll() is None
        time.sleep(0.1)
    for name in ("host002", "host003"):
        for pid in cluster.hosts.processes(cluster.hosts.namespace(name)):
            if Path(f"/proc/{pid}/comm").read_text().strip() == "rsync":
                os.kill(pid, signal.SIGKILL)
    os.kill(begun.pid, signal.SIGKILL)
    begun.wait()
    there = part.stat().st_size
    assert 16_000_000 <= there < (model / BIG).stat().st_size and cluster.has() == ["host001"]
    received = bytes_in(cluster, "host002")
    code, text = cluster.play()
    assert code == 0 and cluster.has() == cluster.hosts.names, text[-4000:]
    assert same(cluster.hosts.own("host002", PLACE), model)
    # What was there is not sent again; the rest is, with what rsync, ssh and Ansible add.
    rest = sum(each.stat().st_size for each in model.rglob("*") if each.is_file()) - there
    assert rest * 0.9 < bytes_in(cluster, "host002") - received < rest + 8_000_000


def bytes_in(cluster: Cluster, name: str) -> int:
    """Bytes that a host has received."""
    argv = ["ip", "-n", cluster.hosts.namespace(name), "-s", "-j", "link", "show", "eth0"]
    shown = subprocess.run(argv, capture_output=True, text=True, check=True)
    return int(json.loads(shown.stdout)[0]["stats64"]["rx"]["bytes"])


def test_a_damaged_file_is_refused_with_its_name(cluster: Cluster, model: Path) -> None:
    place = cluster.give(model)
    with (place / "model.safetensors").open("r+b") as file:
        file.seek(-8, 2)
        file.write(b"damaged!")
    code, text = cluster.play()
    assert code == 0 and "SKIPPED host001" in text and "model.safetensors is damaged" in text, text[-3000:]
    assert text.count("SKIPPED") == COUNT and cluster.has() == ["host001"]
    # What is damaged on its way, or on the disk, is refused as well, and got anew from the next host that has it.
    shutil.copy(model / "model.safetensors", place / "model.safetensors")
    part = cluster.hosts.own("host002", f"/srv/models/{NAME}/.{REVISION}.part")
    shutil.copytree(model, part)
    with (part / BIG).open("r+b") as file:
        file.write(b"damaged!")
    shutil.copystat(place / BIG, part / BIG)
    code, text = cluster.play()
    assert code == 0 and f"{BIG} is damaged" in text, text[-3000:]
    assert cluster.has() == cluster.hosts.names and same(cluster.hosts.own("host002", PLACE), model)


def test_shared_storage_is_verified_once_and_never_written(cluster: Cluster, model: Path) -> None:
    code, text = cluster.play(model_storage="shared")
    assert text.count("SKIPPED") == COUNT and "is not there; put it on one host" in text, text[-3000:]
    for name in cluster.hosts.names:
        shared = cluster.hosts.own(name, PLACE)
        shared.parent.mkdir(parents=True)
        shared.symlink_to(model)
    before = {str(each): each.stat().st_mtime_ns for each in model.rglob("*")}
    code, text = cluster.play("-v", model_storage="shared")
    assert code == 0 and "SKIPPED" not in text, text[-3000:]
    looked = text.split("TASK [model : Look what is there]")[1].split("TASK ")[0]
    assert re.findall(r'"hashed": (\d+)', looked) == ["0"] * COUNT, looked
    assert {str(each): each.stat().st_mtime_ns for each in model.rglob("*")} == before
