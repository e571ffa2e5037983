"""fastfill lab up, down, status and logs, as a user runs them; every ending leaves no process and no port behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from fastfill.lab import install, patched, process, runs, stacks
from fastfill.lab.process import Session
from fastfill.lab.spec import LabSpec
from ports import free_port

TIMEOUT = 400.0


def lab(*words: str, timeout: float = TIMEOUT) -> subprocess.CompletedProcess[str]:
    """Run one lab command."""
    return subprocess.run(
        [sys.executable, "-m", "fastfill", "lab", *words], capture_output=True, text=True, timeout=timeout, check=False
    )


def in_session(leader: int) -> list[psutil.Process]:
    """Living processes of a session, found without the code under test."""
    found = []
    for entry in psutil.process_iter(["status"]):
        try:
            if os.getsid(entry.pid) == leader and entry.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(entry)
        except (ProcessLookupError, PermissionError):
            continue
    return found


def bindable(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@pytest.fixture
def port() -> Iterator[int]:
    """A port whose lab server, if the test leaves one, is stopped."""
    number = free_port()
    yield number
    lab("down", "--port", str(number), timeout=60)
    shutil.rmtree(runs.folder(number), ignore_errors=True)


def test_up_status_logs_down(port: int) -> None:
    started = lab("up", "--port", str(port))
    assert started.returncode == 0, started.stderr
    assert started.stdout == f"http://127.0.0.1:{port}\n"
    assert "over the profile: --mem-fraction-static 0.3" in started.stderr
    body = {"model": "lab", "messages": [{"role": "user", "content": "Grüß Gott"}], "max_tokens": 4}
    answer = httpx.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=body, timeout=60, trust_env=False)
    assert answer.json()["usage"]["completion_tokens"] == 4

    again = lab("up", "--port", str(port))
    assert (again.returncode, again.stdout) == (0, started.stdout)
    assert "already running" in again.stderr
    other = lab("up", "--port", str(port), "--profile", "off", "--", "--disable-radix-cache")
    assert other.returncode == 2
    assert "profile: off, not long-context" in other.stderr
    assert f"fastfill lab down --port {port}" in other.stderr

    listed = json.loads(lab("status", "--json").stdout)["servers"]
    (mine,) = [server for server in listed if server["port"] == port]
    assert mine["state"] == "running"
    assert mine["memory_mb"] < 2500
    assert f"http://127.0.0.1:{port}" in lab("status").stdout
    assert "fired up and ready to roll" in lab("logs", "--port", str(port)).stdout
    assert len(lab("logs", "--port", str(port), "-n", "3").stdout.splitlines()) == 3

    stopped = lab("down", "--port", str(port))
    assert stopped.returncode == 0
    assert in_session(mine["pid"]) == []
    assert bindable(port)
    assert lab("down", "--port", str(port)).returncode == 0
    assert lab("logs", "--port", str(port)).returncode == 0


def test_two_commands_at_once_and_a_starter_that_was_killed_share_one_server(port: int) -> None:
    """Whoever says ``lab up`` gets a server that answers, whether or not somebody else is starting it."""
    command = [sys.executable, "-m", "fastfill", "lab", "up", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as starter:
        deadline = time.monotonic() + 60
        while runs.read(port) is None and time.monotonic() < deadline:
            time.sleep(0.05)
        begun = runs.read(port)
        assert begun is not None and begun.state() == "starting"
        starter.kill()
    both = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True),
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True),
    ]
    said = [process.communicate(timeout=TIMEOUT) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert [out for out, _ in said] == [f"http://127.0.0.1:{port}\n"] * 2
    assert any("another command is starting a server" in err for _, err in said)
    assert httpx.get(f"http://127.0.0.1:{port}/model_info", timeout=20, trust_env=False).status_code == 200
    run = runs.read(port)
    assert run is not None and run.state() == "running" and run.session == begun.session


def test_what_a_crash_leaves_is_ended_and_the_port_is_used_again(port: int) -> None:
    assert lab("up", "--port", str(port)).returncode == 0
    run = runs.read(port)
    assert run is not None
    os.kill(run.session.leader, signal.SIGKILL)
    deadline = time.monotonic() + 20
    while process.alive(run.session) and time.monotonic() < deadline:
        time.sleep(0.1)
    states = {server["port"]: server["state"] for server in json.loads(lab("status", "--json").stdout)["servers"]}
    assert states[port] == "dead"
    assert lab("down", "--port", str(port)).returncode == 0
    assert in_session(run.session.leader) == []
    assert bindable(port)


def test_a_taken_port_is_named_and_left_alone(port: int) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen(1)
        answer = lab("up", "--port", str(port), timeout=30)
        assert answer.returncode == 4
        assert f"port {port} is taken by something that is not a lab server" in answer.stderr
        assert "give another --port" in answer.stderr
        assert runs.read(port) is None
        with socket.create_connection(("127.0.0.1", port), timeout=2):
            pass


def test_a_server_that_dies_at_start_shows_its_last_lines(port: int) -> None:
    answer = lab("up", "--port", str(port), "--allow", "all", "--", "--sampling-backend", "no-such-thing")
    assert answer.returncode == 4
    assert "the server died at start" in answer.stderr
    assert "no-such-thing" in answer.stderr
    assert "server.log" in answer.stderr
    assert runs.read(port) is None
    assert bindable(port)


def test_a_setting_that_serve_refuses_is_shown_with_its_fix(port: int) -> None:
    answer = lab("up", "--port", str(port), "--", "--kv-cache-dtype", "bf16")
    assert answer.returncode == 4
    assert "[kv_dtype_not_fp8]" in answer.stderr
    assert "fix: start with --kv-cache-dtype fp8_e4m3" in answer.stderr
    assert runs.read(port) is None


def test_a_kernel_that_fails_selfcheck_is_not_served(port: int, tmp_path: Path) -> None:
    """The real command in the lab's environment, with a kernel that leaves rows unwritten."""
    profile = tmp_path / "checked.toml"
    profile.write_text('extends = "long-context"\n[fastfill]\nselfcheck = true\n')
    answer = lab("up", "--port", str(port), "--profile", str(profile), "--env", "AITER_EMULATOR_FAULT=unwritten_rows")
    assert answer.returncode == 4
    assert "the server was not started: WRONG: rows unwritten" in answer.stderr
    assert "FAIL  one sequence of 512" in answer.stderr
    assert runs.read(port) is None
    assert bindable(port)


def test_an_interrupt_while_starting_leaves_nothing(port: int) -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "fastfill", "lab", "up", "--port", str(port)], stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while (run := runs.read(port)) is None and time.monotonic() < deadline:
        time.sleep(0.1)
    assert run is not None
    time.sleep(3)
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=60)
    assert child.returncode == 130
    assert in_session(run.session.leader) == []
    assert runs.read(port) is None
    assert bindable(port)


def test_a_pid_that_belongs_to_someone_else_now_is_left_alone() -> None:
    other = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        began = psutil.Process(other.pid).create_time()
        process.end(Session(other.pid, began - 100.0), grace=0.5)
        assert other.poll() is None
        process.end(Session(other.pid, began), grace=5.0)
        assert in_session(other.pid) == []
    finally:
        other.kill()


def test_what_a_dead_leader_leaves_behind_is_ended() -> None:
    """SGLang's children end with their parent; one that does not is found by its session."""
    code = "import subprocess; print(subprocess.Popen(['sleep', '60']).pid, flush=True)"
    leader = subprocess.Popen(
        [sys.executable, "-c", f"{code}; import time; time.sleep(60)"],
        start_new_session=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert leader.stdout is not None
    child = int(leader.stdout.readline())
    session = Session(leader.pid, psutil.Process(leader.pid).create_time())
    leader.kill()
    leader.wait()
    leader.stdout.close()
    assert [entry.pid for entry in process.members(session)] == [child]
    process.end(session)
    assert in_session(leader.pid) == []


def test_what_ignores_sigterm_is_killed() -> None:
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('on', flush=True); time.sleep(60)"
    stubborn = subprocess.Popen([sys.executable, "-c", code], start_new_session=True, stdout=subprocess.PIPE)
    assert stubborn.stdout is not None
    stubborn.stdout.readline()
    process.end(Session(stubborn.pid, psutil.Process(stubborn.pid).create_time()), grace=0.5)
    assert not psutil.pid_exists(stubborn.pid) or psutil.Process(stubborn.pid).status() == psutil.STATUS_ZOMBIE
    stubborn.stdout.close()


def test_an_unknown_stack_names_those_there_are(port: int) -> None:
    answer = lab("up", "--port", str(port), "--stack", "sglang-0.1")
    assert answer.returncode == 2
    assert "sglang-0.5.16" in answer.stderr


def test_a_changed_series_takes_the_place_of_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a copy of the environment that holds only the files that the series changes."""
    stack = stacks.find(LabSpec().stack)
    real = install.ensure(stack)
    pristine = patched.ensure(stack, real)
    environment = tmp_path / "environment"
    packages = install.site_packages(environment, stack)
    shutil.copytree(pristine, packages)
    (packages / "sglang" / "__init__.py").touch()
    (packages / f"sglang-{stack.sglang}.dist-info").mkdir()
    series = tmp_path / "series"
    shutil.copytree(stack.series(), series)
    monkeypatch.setattr(stacks.Stack, "series", lambda _: series)
    backend = packages / "sglang/srt/layers/attention/aiter_backend.py"
    wheel = backend.read_bytes()

    patched.ensure(stack, environment)
    first = backend.read_bytes()
    assert b"sglang_fastfill" in first
    patch = series / "fp8-hd256-prefill.patch"
    text = patch.read_text()
    assert "+from sglang_fastfill import prefill as fastfill_prefill\n" in text
    patch.write_text(text.replace("import prefill as fastfill_prefill\n", "import prefill as fastfill_prefill  # 2\n"))
    kept = patched.ensure(stack, environment)
    second = backend.read_bytes()
    assert second == first.replace(
        b"import prefill as fastfill_prefill\n", b"import prefill as fastfill_prefill  # 2\n"
    )
    assert (kept / "sglang/srt/layers/attention/aiter_backend.py").read_bytes() == wheel
    patched.ensure(stack, environment)
    assert backend.read_bytes() == second
