"""A release that comes from a registry by its digest instead of from an archive."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from rig import ROOT, Played, Rig, run, serves, until, untouched

from ports import free_port

ONE = "ffhost2"
"""One host is enough: what a release does after its image is there is the same for all of them."""


class Registry:
    """Debian's docker-registry on this machine.

    Args:
        folder: For its data.
        gateway: This machine, as the hosts see it.

    Attributes:
        settings: What the hosts' engines need for a registry without TLS.
    """

    def __init__(self, folder: Path, gateway: str) -> None:
        self.port = free_port()
        self.address = f"{gateway}:{self.port}"
        self.settings = json.dumps({"engine_settings": {"insecure-registries": [self.address]}})
        config = folder / "registry.yml"
        config.write_text(
            f"version: 0.1\nstorage: {{filesystem: {{rootdirectory: {folder}/data}}}}\nhttp: {{addr: ':{self.port}'}}\n"
        )
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(["docker-registry", "serve", str(config)], stdout=log, stderr=log)

    def answers(self) -> bool:
        """Whether it does."""
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}/v2/", trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False

    def take(self) -> str:
        """Put the lab's image there; returns it by its digest, at the address that the hosts know."""
        here = f"127.0.0.1:{self.port}/fastfill-lab"
        run("docker", "tag", "fastfill-lab:latest", f"{here}:latest")
        try:
            run("docker", "push", "--quiet", f"{here}:latest", timeout=900)
            listed = json.loads(
                run("docker", "image", "inspect", "-f", "{{json .RepoDigests}}", f"{here}:latest").stdout
            )
        finally:
            run("docker", "rmi", f"{here}:latest")
        (digest,) = (one.partition("@")[2] for one in listed if one.startswith(f"{here}@"))
        return f"{self.address}/fastfill-lab@{digest}"


@pytest.fixture
def registry(rig: Rig, tmp_path: Path) -> Iterator[Registry]:
    run(str(ROOT / "tests/docker/engine.sh"), "install")
    found = Registry(tmp_path, rig.gateway)
    try:
        until(found.answers, 20, lambda: (tmp_path / "log").read_text()[-2000:])
        yield found
    finally:
        found.process.terminate()
        found.process.wait()


def release(name: str, image: str) -> dict[str, Any]:
    """A release of the lab, by digest."""
    return {"name": name, "image": image, "compose": ["compose.lab.yaml"]}


def test_a_release_comes_by_its_digest_and_one_that_is_not_there_touches_nobody(
    rig: Rig, rolled_out: Played, registry: Registry, record_property
) -> None:
    image = registry.take()
    before = rig.states()
    only = ("--limit", ONE, "-e", registry.settings)
    missing = image.partition("@")[0] + "@sha256:" + "ab" * 32
    played = rig.play("site", *only, release=release("missing", missing))
    assert played.code != 0, played.text[-3000:]
    verdict = rig.audit()[-1]["verdict"]
    assert f"{ONE}: skipped: Pull it by its digest: " in verdict and "not found" in verdict, verdict
    untouched(before, rig.states(), "nobody")
    played = rig.play("site", *only, release=release("registry", image))
    record_property("seconds", round(played.seconds))
    assert played.code == 0, played.text[-6000:]
    after = rig.states()
    one = after[f"{ONE}/main"]
    assert one["proven"].startswith("registry-") and serves(one), one
    untouched(before, after, ONE)
    # The host names the image as the release is named, and by nothing that can move.
    shown = rig.on(ONE, "docker", "image", "ls", "--digests", "--format", "{{.Repository}} {{.Digest}}").stdout
    assert image.partition("@")[2] in shown
    back = rig.play("rollback", "--limit", ONE)
    assert back.code == 0, back.text[-4000:]
    again = rig.states(ONE)[f"{ONE}/main"]
    assert serves(again) and again["proven"] == before[f"{ONE}/main"]["proven"]
