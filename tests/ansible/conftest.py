"""A real engine, hosts on it, the lab image as an archive, and the first rollout, each once a session."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from rig import CURRENT, HERE, ROOT, STATE, Played, Rig, run
from traffic import Router
from watch import Watch

ROUTER_PORT = int(os.environ.get("FASTFILL_ROUTER_PORT", "30080"))


@pytest.fixture(scope="session")
def engine() -> Iterator[str]:
    """DOCKER_HOST: the caller's, else an engine that is started here and stopped at the end."""
    if os.environ.get("DOCKER_HOST"):
        yield os.environ["DOCKER_HOST"]
        return
    up = run(str(ROOT / "tests/docker/engine.sh"), "up")
    host = re.search(r"export DOCKER_HOST=(\S+)", up.stdout)
    assert host, up.stdout
    os.environ["DOCKER_HOST"] = host[1]
    yield host[1]
    del os.environ["DOCKER_HOST"]
    if "already running" not in up.stderr:
        run(str(ROOT / "tests/docker/engine.sh"), "down")


@pytest.fixture(scope="session")
def archive(engine: str) -> tuple[str, Path]:
    """The lab image's id, and the image as it is shipped; saved once an image."""
    shown = run("docker", "image", "inspect", "--format", "{{.Id}}", "fastfill-lab:latest", check=False)
    if shown.returncode != 0:
        run(str(ROOT / ".venv/bin/pytest"), "-q", "tests/docker", "-k", "test_the_image_is_small", timeout=1500)
        shown = run("docker", "image", "inspect", "--format", "{{.Id}}", "fastfill-lab:latest")
    image_id = shown.stdout.strip()
    file = STATE / f"lab-{image_id[7:19]}.tar.zst"
    if not file.is_file():
        STATE.mkdir(parents=True, exist_ok=True)
        for old in STATE.glob("lab-*.tar.zst"):
            old.unlink()
        part = file.with_suffix(".part")
        saving = f"set -o pipefail; docker save fastfill-lab:latest | zstd -q -T0 -3 -f -o '{part}'"
        subprocess.run(["bash", "-c", saving], check=True, timeout=600)
        part.rename(file)
    return image_id, file


@pytest.fixture(scope="session")
def rig(engine: str, archive: tuple[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """Three hosts; FASTFILL_HOSTS_KEEP=1 leaves them, and what runs on them, for the next session."""
    up = run(str(HERE / "hosts.sh"), "up", "3")
    try:
        with Watch() as watch:
            one = Rig(tmp_path_factory.mktemp("rig"), up.stdout.splitlines(), *archive)
            watch.secrets = list(one.keys.values())
            one.shown = watch.shown
            yield one
    finally:
        if not os.environ.get("FASTFILL_HOSTS_KEEP"):
            run(str(HERE / "hosts.sh"), "down")
            CURRENT.unlink(missing_ok=True)


@pytest.fixture(scope="session")
def router(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Router]:
    """A router that the hosts keep in step."""
    one = Router(tmp_path_factory.mktemp("router"), rig.gateway, ROUTER_PORT, rig.keys["server_router_key"])
    rig.settings["fleet_routers"] = [one.url]
    rig.write(rig.inventory)
    one.start()
    yield one
    one.kill()


@pytest.fixture(scope="session")
def rolled_out(rig: Rig, router: Router) -> Played:
    """The good release on every host."""
    return rig.play("site", "-e", '{"fleet_serial": [1, 2]}', release=rig.current, timeout=1200)
