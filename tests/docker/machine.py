"""What the docker tests need of this machine: how pip reaches its index here, free ports, commands."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
UNIT = ROOT / "tests/unit"
"""Its makers of recorded hosts and of aiter's tree are used here too."""
IGNORED = shutil.ignore_patterns(".git", ".venv", ".*_cache", ".hypothesis", "__pycache__")
CANNOT = 4
"""What engine.sh exits with where no engine can run."""
LABEL = "org.opencontainers.image.title=fastfill lab"
"""On the lab's images, and on no other."""
PORTS = range(31200, 31300)
PLANTED = "planted-build-secret-55d1"
"""Stands in what a build is given as a secret; no layer may hold it."""


def run(*argv: str, check: bool = True, timeout: float = 600, **more: object) -> subprocess.CompletedProcess[str]:
    """A command with its output as text; a failure shows the end of it."""
    done = subprocess.run(
        argv, capture_output=True, text=True, errors="replace", timeout=timeout, cwd=more.pop("cwd", ROOT), **more
    )
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(argv)}: exit {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}")
    return done


def unable(why: str) -> NoReturn:
    """This machine cannot run a test: a failure in CI, where nobody would see that it was left out."""
    if os.environ.get("CI", "").lower() in ("1", "true"):
        pytest.fail(f"CI must run this test, and this machine cannot: {why}", pytrace=False)
    pytest.skip(why)


def engine(action: str) -> subprocess.CompletedProcess[str]:
    """engine.sh, where this machine can run an engine at all."""
    done = run(str(HERE / "engine.sh"), action, check=False)
    if done.returncode == CANNOT:
        unable(done.stderr.replace("engine: ", "").strip().replace("\n", "; "))
    assert done.returncode == 0, done.stderr
    return done


def free_port() -> int:
    """A port of the tests' own range that nothing listens on."""
    for port in PORTS:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("0.0.0.0", port))
            except OSError:
                continue
            return port
    raise AssertionError("no port is free")


def wait(what: str, ready: Callable[[], bool], seconds: float) -> float:
    """Wait until something holds; returns the seconds it took."""
    begun = time.monotonic()
    while not ready():
        if time.monotonic() - begun > seconds:
            raise AssertionError(f"not within {seconds:.0f} s: {what}")
        time.sleep(0.25)
    return time.monotonic() - begun


def pip_setting(name: str) -> str:
    """One of pip's own settings on this machine, "" if it has none."""
    argv = [sys.executable, "-m", "pip", "config", "get", name]
    return subprocess.run(argv, capture_output=True, text=True).stdout.strip()


def pip_options(target: str, folder: Path) -> list[str]:
    """Bake's options that let pip inside a build reach what pip out here reaches.

    A company's index, certificate or folder of wheels is this machine's own: it goes in as a secret and as a named
    context, and stays out of the image.
    """
    lines = [f"# {PLANTED}", "[global]", "timeout = 180"]
    for name in ("index-url", "cert", "trusted-host"):
        value = pip_setting(f"global.{name}")
        if value:
            lines.append(f"{name} = {value}")
    secret = folder / "pip.conf"
    secret.write_text("\n".join(lines) + "\n")
    options = [f"--set={target}.secrets=id=pip,src={secret}"]
    for place in pip_setting("global.find-links").split() + os.environ.get("PIP_FIND_LINKS", "").split():
        if any(Path(place).glob("torch-*cpu*.whl")):
            options += [f"--set={target}.contexts.wheels={place}", f"--set={target}.args.FASTFILL_LAB_TORCH_INDEX="]
            break
    return options


def bake(
    target: str, folder: Path, *options: str, context: Path = ROOT, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Build a target; the output is the plain progress."""
    argv = ["docker", "buildx", "bake", "--progress=plain", "-f", "docker/docker-bake.hcl", target]
    return run(*argv, *pip_options(target, folder), *options, check=check, timeout=1500, cwd=context)
