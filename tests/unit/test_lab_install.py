"""The installation of an environment, with two small packages in the place of torch and SGLang: real venv, real pip."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path

import pytest

from fastfill import data
from fastfill.errors import NotReadyError
from fastfill.lab import cache, install, packages
from fastfill.lab.stacks import Stack

SMALL = ("iniconfig", "pluggy")


def _entry(name: str) -> str:
    text = (data.requirements() / "dev.txt").read_text().replace("\\\n", " ")
    return next(line for line in text.splitlines() if line.startswith(f"{name}==")) + "\n"


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stack:
    """A stack of two small packages, for the running Python, in a cache of the test's own."""
    monkeypatch.setenv("FASTFILL_CACHE", str(tmp_path / "cache"))
    locks = [tmp_path / f"{name}.txt" for name in SMALL]
    for name, lock in zip(SMALL, locks, strict=True):
        lock.write_text(_entry(name))
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return Stack("small", "0", python, locks[0], locks[1], patched=False)


def _left(place: Path) -> list[str]:
    return sorted(entry.name for entry in place.iterdir() if not entry.name.endswith((".lock", ".log")))


def test_an_interrupted_installation_leaves_nothing_and_is_begun_again(
    stack: Stack, capsys: pytest.CaptureFixture[str]
) -> None:
    code = (
        "from fastfill.lab import install, stacks; from pathlib import Path; "
        f"install.ensure(stacks.Stack('small', '0', {stack.python!r}, Path({str(stack.torch_lock)!r}), "
        f"Path({str(stack.lock)!r}), False))"
    )
    child = subprocess.Popen([sys.executable, "-c", code], start_new_session=True, stderr=subprocess.DEVNULL)
    place = cache.root() / "environments"
    partial = place / f".{stack.environment_name()}.partial"
    deadline = time.monotonic() + 30
    while not (partial / "bin").exists():
        assert child.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    assert partial.exists()
    assert not (place / stack.environment_name()).exists()

    environment = install.ensure(stack)
    assert "interrupted" in capsys.readouterr().err
    assert _left(place) == [stack.environment_name()]
    versions = subprocess.run(
        [install.python_of(environment), "-c", "import iniconfig, pluggy; print('both')"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert versions.stdout == "both\n"
    before = environment.stat().st_mtime_ns
    assert install.ensure(stack) == environment
    assert environment.stat().st_mtime_ns == before


def test_an_environment_over_another_adds_what_differs_and_sees_the_rest(stack: Stack, tmp_path: Path) -> None:
    newer = tmp_path / "newer.txt"
    newer.write_text(_entry("pluggy"))
    older = tmp_path / "older.txt"
    older.write_text(_entry("iniconfig"))
    base = stack._replace(name="base", lock=older)
    over = stack._replace(name="over", lock=newer, over=base)
    environment = install.ensure(over)
    answer = subprocess.run(
        [install.python_of(environment), "-c", "import iniconfig, pluggy; print(iniconfig.__file__, pluggy.__file__)"],
        capture_output=True,
        text=True,
        check=True,
    )
    theirs, ours = answer.stdout.split()
    assert Path(theirs).is_relative_to(install.ensure(base))
    assert Path(ours).is_relative_to(environment)
    shutil.rmtree(install.ensure(base))
    install.ensure(over)
    assert (install.ensure(base) / "bin").is_dir(), "what it lies on is made again"


def test_an_interrupt_while_installing_removes_the_half(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(install, "_watch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        install.ensure(stack)
    assert _left(cache.root() / "environments") == []


def test_without_a_network_the_error_names_the_way_out(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("PIP_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    with pytest.raises(NotReadyError) as caught:
        install.ensure(stack)
    lines = "\n".join(caught.value.lines())
    assert "torch could not be installed" in lines
    assert "FASTFILL_LAB_TORCH_INDEX" in caught.value.next_step
    assert _left(cache.root() / "environments") == []
    assert Path(caught.value.where).is_file()


def test_a_wrong_hash_is_refused(stack: Stack) -> None:
    stack.lock.write_text(f"{SMALL[1]}==1.6.0 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(NotReadyError) as caught:
        install.ensure(stack)
    assert "could not be installed" in caught.value.what
    assert _left(cache.root() / "environments") == []


def test_a_full_disk_is_said_before_anything_is_written(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**12, 10**12, 3 * 10**9))
    with pytest.raises(NotReadyError, match=r"needs about 4 GB, and 3\.0 GB are free") as caught:
        install.ensure(stack)
    assert "FASTFILL_CACHE" in caught.value.next_step
    assert _left(cache.root() / "environments") == []


def test_no_fitting_python_is_said(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTFILL_LAB_PYTHON", "/nonexistent/python")
    with pytest.raises(NotReadyError, match="locked for Python") as caught:
        install.ensure(stack)
    assert "FASTFILL_LAB_PYTHON" in caught.value.next_step


def test_a_cache_that_cannot_be_made_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FASTFILL_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(NotReadyError, match="cache folder cannot be made"):
        cache.folder("run")


def test_links_carry_the_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTFILL_CACHE", str(tmp_path))
    links = packages.link()
    assert packages.link() == links
    code = (
        "import importlib.metadata as m, fastfill, sglang_fastfill; "
        "print([e.value for e in m.entry_points(group='sglang.srt.plugins')]); print(fastfill.__file__)"
    )
    answer = subprocess.run(
        [sys.executable, "-S", "-c", code], env={"PYTHONPATH": str(links)}, capture_output=True, text=True, check=True
    )
    assert answer.stdout.splitlines() == [
        "['sglang_fastfill.plugin:register']",
        str(links / "fastfill" / "__init__.py"),
    ]
