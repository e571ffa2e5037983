"""A real engine, the images, and a running lab, each made once a session and only if a test asks."""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import machine
import pytest
from lab_container import Lab
from machine import HERE, IGNORED, ROOT, bake, run
from vendor_standin import Vendor


@pytest.fixture(scope="session", autouse=True)
def ended_by_a_signal() -> Iterator[None]:
    """A time limit's SIGTERM ends the tests as Ctrl-C does: what they started is stopped."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture(scope="session")
def docker_cli() -> None:
    """Docker's command line with buildx and Compose; installed where that is possible."""
    for plugin in ("buildx", "compose"):
        if shutil.which("docker") is None or run("docker", plugin, "version", check=False).returncode != 0:
            machine.engine("install")
            return


@pytest.fixture(scope="session")
def engine() -> Iterator[str]:
    """DOCKER_HOST: the caller's, else one that answers here already, else one started here and stopped at the end."""
    if os.environ.get("DOCKER_HOST"):
        yield os.environ["DOCKER_HOST"]
        return
    up = machine.engine("up")
    host = re.search(r"export DOCKER_HOST=(\S+)", up.stdout)
    assert host, up.stdout
    os.environ["DOCKER_HOST"] = host[1]
    try:
        yield host[1]
    finally:
        # Images that a rebuild has taken the name from, and nothing else: the build cache makes the next run short.
        run("docker", "image", "prune", "--force", "--filter", f"label={machine.LABEL}", check=False)
        del os.environ["DOCKER_HOST"]
        if "already running" not in up.stderr:
            machine.engine("down")


@pytest.fixture(scope="session")
def python_image(engine: str) -> str:
    """python:3.11-slim, or where no registry is reached a stand-in of that name."""
    name = "python:3.11-slim"
    for here in (("image", "inspect"), ("pull", "--quiet")):
        if run("docker", *here, name, check=False, timeout=120).returncode == 0:
            return name
    run(str(HERE / "base-image.sh"), name, "python3", "python3-venv")
    return name


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for what a build is given."""
    return tmp_path_factory.mktemp("build")


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This checkout as it was when the tests began: what is edited meanwhile rebuilds nothing."""
    return Path(shutil.copytree(ROOT, tmp_path_factory.mktemp("source") / "checkout", ignore=IGNORED))


@pytest.fixture(scope="session")
def lab_image(python_image: str, scratch: Path, source: Path, record_testsuite_property) -> str:
    """fastfill-lab:latest, built by the one build entry."""
    begun = time.monotonic()
    bake("lab", scratch, context=source)
    record_testsuite_property("lab_build_seconds", round(time.monotonic() - begun))
    return "fastfill-lab:latest"


@pytest.fixture(scope="session")
def lab(lab_image: str) -> Iterator[Lab]:
    """The lab, up and healthy through compose.lab.yaml."""
    started = Lab("fastfill-test")
    try:
        started.up()
        yield started
    finally:
        started.down()


@pytest.fixture(scope="session")
def vendor(python_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vendor]:
    """Stand-ins for what only a network has: the vendor's registry and image, and the git repositories."""
    standin = Vendor(tmp_path_factory.mktemp("vendor"))
    try:
        standin.start()
        yield standin
    finally:
        standin.stop()
