"""A release that comes from a registry by its digest instead of from an archive."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rig import ROOT, Played, Rig, run, untouched

from ports import free_port

NETWORK = "fastfill-hosts"


class Registry:
    """Debian's docker-registry on this machine, with the lab's image in it.

    Attributes:
        image: The image by its digest, at the address at which the hosts reach this machine.
        settings: What the hosts' engines need for a registry without TLS.
    """

    def __init__(self, folder: Path) -> None:
        port = free_port()
        config = folder / "registry.yml"
        config.write_text(
            f"version: 0.1\nstorage: {{filesystem: {{rootdirectory: {folder}/data}}}}\nhttp: {{addr: ':{port}'}}\n"
        )
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(["docker-registry", "serve", str(config)], stdout=log, stderr=log)
        for _ in range(100):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/", timeout=2):
                    break
            except OSError:
                time.sleep(0.2)
        here = f"127.0.0.1:{port}/fastfill-lab:latest"
        run("docker", "tag", "fastfill-lab:latest", here)
        try:
            run("docker", "push", "--quiet", here, timeout=900)
            listed = json.loads(run("docker", "image", "inspect", "--format", "{{json .RepoDigests}}", here).stdout)
        finally:
            run("docker", "rmi", here)
        (digest,) = (one.partition("@")[2] for one in listed if one.startswith(f"127.0.0.1:{port}/"))
        gateway = run(
            "docker", "network", "inspect", NETWORK, "-f", "{{(index .IPAM.Config 0).Gateway}}"
        ).stdout.strip()
        address = f"{gateway}:{port}"
        self.image = f"{address}/fastfill-lab@{digest}"
        self.settings = json.dumps({"engine_settings": {"insecure-registries": [address]}})


@pytest.fixture
def registry(rig: Rig, tmp_path: Path) -> Iterator[Registry]:
    run(str(ROOT / "tests/docker/engine.sh"), "install")
    found = Registry(tmp_path)
    yield found
    found.process.terminate()
    found.process.wait()


def release(name: str, image: str) -> dict[str, Any]:
    """A release of the lab, by digest."""
    return {"name": name, "image": image, "compose": ["compose.lab.yaml"]}


def test_a_release_comes_by_its_digest_and_one_that_is_not_there_touches_nobody(
    rig: Rig, rolled_out: Played, registry: Registry, record_property
) -> None:
    before = rig.states()
    missing = registry.image.partition("@")[0] + "@sha256:" + "ab" * 32
    played = rig.play("site", "-e", registry.settings, release=release("missing", missing))
    assert played.code != 0 and "ab" * 32 in played.text, played.text[-3000:]
    untouched(before, rig.states(), "nobody")
    played = rig.play("site", "-e", registry.settings, release=release("registry", registry.image), timeout=1500)
    record_property("seconds", round(played.seconds))
    assert played.code == 0, played.text[-6000:]
    for name, one in rig.states().items():
        assert one["proven"].startswith("registry-") and one["runs"] == one["proven"] and one["in_service"], (name, one)
    # The hosts name the image as the release is named, and by nothing that can move.
    shown = rig.on("ffhost1", "docker", "image", "ls", "--digests", "--format", "{{.Repository}} {{.Digest}}").stdout
    assert registry.image.partition("@")[2] in shown
