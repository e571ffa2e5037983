"""`fastfill supervise` with real child processes: its output, its signals, its end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

SERVER = """
import os, signal, subprocess, sys, time
print("[aiter] LoadKernel: _ZN5aiter hsaco: x.co", flush=True)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("child", child.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def started(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, "-m", "fastfill", "supervise", "--stopped", "2", "--state-dir", str(tmp_path), "--"]
    process = subprocess.Popen(
        [*argv, sys.executable, "-c", SERVER],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    yield process
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)


def child_of(started: subprocess.Popen[str]) -> psutil.Process:
    assert started.stdout is not None
    for line in started.stdout:
        if line.startswith("child "):
            return psutil.Process(int(line.split()[1]))
    raise AssertionError(started.communicate())


def gone(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_the_kernels_line_is_passed_on_and_kept(started: subprocess.Popen[str], tmp_path: Path) -> None:
    assert started.stdout is not None
    line = started.stdout.readline().strip()
    assert line.startswith("[aiter] LoadKernel:")
    child_of(started)
    kept = json.loads((tmp_path / "kernels.jsonl").read_text())
    assert kept["line"] == line
    assert abs(kept["time"] - time.time()) < 60
    assert psutil.Process(kept["server_pid"]).ppid() == started.pid


def test_a_signal_reaches_the_server_and_nothing_is_left(started: subprocess.Popen[str]) -> None:
    child = child_of(started)
    started.send_signal(signal.SIGTERM)
    assert started.wait(30) == 128 + signal.SIGTERM
    assert gone(child)


def test_a_stopped_process_ends_the_server(started: subprocess.Popen[str]) -> None:
    child = child_of(started)
    begun = time.monotonic()
    child.suspend()
    assert started.wait(30) == 1
    assert time.monotonic() - begun > 2
    assert gone(child)
    assert started.stderr is not None
    assert f"process {child.pid} has been stopped" in started.stderr.read()


def test_a_process_that_goes_on_in_time_does_not(started: subprocess.Popen[str]) -> None:
    child = child_of(started)
    child.suspend()
    time.sleep(1)
    child.resume()
    with pytest.raises(subprocess.TimeoutExpired):
        started.wait(4)


@pytest.mark.parametrize(("program", "code"), [("raise SystemExit(2)", 2), ("import os; os.kill(os.getpid(), 9)", 137)])
def test_its_exit_code_is_the_servers(program: str, code: int) -> None:
    argv = [sys.executable, "-m", "fastfill", "supervise", "--", sys.executable, "-c", program]
    assert subprocess.run(argv, capture_output=True, timeout=60).returncode == code
