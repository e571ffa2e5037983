"""A real engine, the images, and a running lab, each made once a session and only if a test asks."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import machine
import pytest
from lab_container import Lab
from machine import ADMIN, HERE, IGNORED, KEY, ROOT, Measured, compose_build, run
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
def lab_build(python_image: str, scratch: Path, source: Path) -> Iterator[Callable[[], float]]:
    """The lab's image being built by Compose beside what is tested meanwhile; a call waits, and says its seconds."""
    log = scratch / "lab-build.log"
    argv, environment = compose_build(scratch)
    begun = time.monotonic()
    ended: list[float] = []
    with log.open("w") as file:
        build = subprocess.Popen(argv, cwd=source, env=environment, stdout=file, stderr=subprocess.STDOUT)
    watch = threading.Thread(target=lambda: (build.wait(), ended.append(time.monotonic())))
    watch.start()

    def built() -> float:
        watch.join()
        assert build.returncode == 0, log.read_text()[-6000:]
        return ended[0] - begun

    try:
        yield built
    finally:
        if build.poll() is None:
            build.kill()
        watch.join()


@pytest.fixture(scope="session")
def lab_image(lab_build: Callable[[], float], measured: Measured) -> str:
    """fastfill-lab:latest, built from a clean copy of the checkout with no .env."""
    measured("lab image built, beside other tests", lab_build(), 360, judge=False)
    return "fastfill-lab:latest"


@pytest.fixture(scope="session")
def labs(lab_image: str, measured: Measured, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Lab]]:
    """Two labs, healthy side by side through compose.lab.yaml: one as it comes, one with keys and the flag off."""
    folder = tmp_path_factory.mktemp("keys")
    files = {}
    for name, key in (("FASTFILL_API_KEY_FILE", KEY), ("FASTFILL_ADMIN_API_KEY_FILE", ADMIN)):
        (folder / name).write_text(key + "\n")
        files[name] = str(folder / name)
    both = {
        "plain": Lab("fastfill-test"),
        "locked": Lab("fastfill-test-keys", key=KEY, LAB_PROFILE="off", **files),
    }
    try:
        begun = time.monotonic()
        for lab in both.values():
            lab.start()
        for lab in both.values():
            lab.up()
        measured("two labs at once, up to healthy", time.monotonic() - begun, 90, judge=False)
        yield both
    finally:
        for lab in both.values():
            lab.down()


@pytest.fixture(scope="session")
def lab(labs: dict[str, Lab]) -> Lab:
    """The lab as it comes: no key, and the flag on."""
    return labs["plain"]


@pytest.fixture(scope="session")
def locked(labs: dict[str, Lab]) -> Lab:
    """The lab that asks for a key, with the flag off."""
    return labs["locked"]


@pytest.fixture(scope="session")
def vendor(
    request: pytest.FixtureRequest, python_image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Vendor]:
    """Stand-ins for what only a network has: the vendor's registry and image, and the git repositories."""
    if any("lab_image" in getattr(item, "fixturenames", ()) for item in request.session.items):
        request.getfixturevalue("lab_build")
    standin = Vendor(tmp_path_factory.mktemp("vendor"))
    try:
        standin.start()
        yield standin
    finally:
        standin.stop()


_measured: list[str] = []


@pytest.fixture(scope="session")
def measured() -> Measured:
    """``measured(what, seconds, bound)``: shown at the end of the run. ``judge=False`` where other work on the machine
    decides: what starts or is built takes as long as the cores that are free allow."""

    def note(what: str, seconds: float, bound: float, *, judge: bool = True) -> None:
        allowed = f"at most {bound:.0f}" if judge else f"{bound:.0f} are allowed on idle cores"
        _measured.append(f"{what}: {seconds:.1f} s ({allowed})")
        assert not judge or seconds <= bound, _measured[-1]

    return note


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _measured:
        terminalreporter.section("measured")
        terminalreporter.write_line("\n".join([*_measured, f"load average: {os.getloadavg()[0]:.1f}"]))
