"""What the docker tests need of this machine: how pip reaches its index here, free ports, commands."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, Protocol

import pytest

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
UNIT = ROOT / "tests/unit"
"""Its makers of recorded hosts and of aiter's tree are used here too."""
IGNORED = shutil.ignore_patterns(".git", ".env", ".venv", ".*_cache", ".hypothesis", "__pycache__")
BAKE = ("docker", "buildx", "bake", "-f", "docker/docker-bake.hcl")
CANNOT = 4
"""What engine.sh exits with where no engine can run."""
LABEL = "org.opencontainers.image.title=fastfill lab"
"""On the lab's images, and on no other."""
PORTS = range(31200, 31300)
KEY, ADMIN = "sk-planted-ordinary-7f3a", "sk-planted-admin-91bc"
"""The keys of a server that asks for them; nothing that it leaves behind may hold them."""
PLANTED = "planted-build-secret-55d1"
"""Stands in what a build is given as a secret; no layer may hold it."""

SECRETS = [KEY.encode(), ADMIN.encode(), PLANTED.encode()]
KNOWN = [
    b"SGLANG_AITER_FMHA_FP8_ASM",
    b"Which prompts take the fast path, and why the others do not: this line is in no image.",
]
"""A word that every image of ours holds, and one that none does: that they were searched is seen by the first."""


class Measured(Protocol):
    """Notes a duration, and fails where it is beyond its bound."""

    def __call__(self, what: str, seconds: float, bound: float, *, judge: bool = True) -> None: ...


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


_given: set[int] = set()


def free_port() -> int:
    """A port of the tests' own range that nothing listens on, another one at each call."""
    for port in PORTS:
        if port in _given:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("0.0.0.0", port))
            except OSError:
                continue
            _given.add(port)
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


def pip_secret(folder: Path) -> Path:
    """A pip.conf that lets pip inside a build reach what pip out here reaches.

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
    return secret


def wheels() -> str | None:
    """This machine's own folder with PyTorch's CPU build; None where an index has it."""
    for place in pip_setting("global.find-links").split() + os.environ.get("PIP_FIND_LINKS", "").split():
        if any(Path(place).glob("torch-*cpu*.whl")):
            return place
    return None


def bake(
    target: str, folder: Path, *options: str, context: Path = ROOT, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Build a target; the progress is in stderr."""
    given = [f"--set={target}.secrets=id=pip,src={pip_secret(folder)}"]
    if target == "lab" and wheels():
        given += [f"--set=lab.contexts.wheels={wheels()}", "--set=lab.args.FASTFILL_LAB_TORCH_INDEX="]
    argv = [*BAKE, "--progress=plain", target, *given, *options]
    return run(*argv, check=check, timeout=1500, cwd=context)


def compose_build(folder: Path) -> tuple[list[str], dict[str, str]]:
    """The command that builds the lab from compose.lab.yaml, and its environment; the progress is in stderr.

    What is this machine's own comes from a second file, as it would on a company's machine.
    """
    build: dict[str, object] = {"secrets": ["pip"]}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LAB_")}
    if wheels():
        build["additional_contexts"] = {"wheels": wheels()}
        environment["FASTFILL_LAB_TORCH_INDEX"] = ""
    own = {"services": {"server": {"build": build}}, "secrets": {"pip": {"file": str(pip_secret(folder))}}}
    file = folder / "compose.own.yaml"
    file.write_text(json.dumps(own))
    files = ["--env-file", "/dev/null", "-f", "compose.lab.yaml", "-f", str(file)]
    return ["docker", "compose", "--progress=plain", *files, "build", "server"], environment


def held(image: str, words: list[bytes]) -> set[bytes]:
    """Which of some words stand anywhere in an image: every layer, as ``docker save`` writes it, and its metadata."""
    found: set[bytes] = set()
    overlap = max(map(len, words)) - 1
    with subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE) as saving:
        assert saving.stdout is not None
        before = b""
        while piece := saving.stdout.read(1 << 24):
            window = before + piece
            found |= {word for word in words if word in window}
            before = window[-overlap:]
    assert saving.returncode == 0
    return found
