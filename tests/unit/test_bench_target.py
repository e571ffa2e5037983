"""How one arm takes the place of the other: the kill switch over HTTP, and servers that are started and ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from contract_server import ContractServer
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from fastfill.benchmark import arms
from fastfill.benchmark.connection import Connection
from fastfill.benchmark.ending import orderly
from fastfill.benchmark.restart import OwnPathTarget, RestartTarget, serve_argv
from fastfill.benchmark.target import PathTarget
from fastfill.errors import FastfillError, NotReadyError
from fastfill.serving.profile import load
from ports import free_port

OFF, ON = (arms.compare(load("off"), load("long-context"), switch=None).arm(name) for name in ("A", "B"))
SERVER = """
import http.server, os, sys
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(sys.argv[1].encode())
http.server.HTTPServer(("127.0.0.1", int(sys.argv[2])), Answer).serve_forever()
"""


def test_the_switch_is_thrown_for_each_arm_and_put_back(httpserver: HTTPServer) -> None:
    server = ContractServer(httpserver)
    target = PathTarget(Connection(server.url), "me@here")
    for arm, state in ((OFF, "off"), (ON, "on"), (ON, "on"), (OFF, "off")):
        assert target.take(arm) is False
        assert server.path["path"] == state
    assert server.path["who"] == "me@here"
    target.close()
    assert server.path["path"] == "on"


def test_a_switch_that_was_off_is_off_again(httpserver: HTTPServer) -> None:
    server = ContractServer(httpserver)
    server.path = {**server.path, "path": "off"}
    target = PathTarget(Connection(server.url), "me@here")
    target.take(ON)
    assert server.path["path"] == "on"
    target.close()
    assert server.path["path"] == "off"


def busy(httpserver: HTTPServer, running: list[float]) -> list[str]:
    """A server with this many requests under way, one number a look; returns what it is sent."""
    seen: list[str] = []

    def metrics(request: Request) -> Response:
        left = running.pop(0) if len(running) > 1 else running[0]
        return Response(f"sglang:num_running_reqs {left}\nsglang:num_queue_reqs 0.0\n")

    def flush(request: Request) -> Response:
        seen.append("flush")
        return Response("", status=200 if len(seen) > 1 else 400)

    httpserver.expect_request("/metrics").respond_with_handler(metrics)
    httpserver.expect_request("/flush_cache").respond_with_handler(flush)
    return seen


def test_a_drain_waits_until_nothing_runs_and_then_empties_the_cache(httpserver: HTTPServer) -> None:
    running = [3.0, 1.0, 0.0, 1.0, 0.0]
    seen = busy(httpserver, running)
    Connection(httpserver.url_for("").rstrip("/")).drain(20.0)
    assert running == [0.0]
    # Refused once, because something had just been running: asked again.
    assert seen == ["flush", "flush"]


def test_a_server_that_others_use_is_not_drained(httpserver: HTTPServer) -> None:
    busy(httpserver, [2.0])
    with pytest.raises(FastfillError, match="still under way"):
        Connection(httpserver.url_for("").rstrip("/")).drain(0.3)


def test_a_server_without_metrics_cannot_be_drained(httpserver: HTTPServer) -> None:
    httpserver.expect_request("/metrics").respond_with_data("other 1\n")
    with pytest.raises(FastfillError, match="nothing of its running requests"):
        Connection(httpserver.url_for("").rstrip("/")).drain(0.3)


@pytest.fixture
def target(tmp_path: Path) -> Iterator[RestartTarget]:
    port = free_port()

    def argv(profile: str) -> list[str]:
        if profile == "bad":
            return [sys.executable, "-c", "import sys; sys.exit('no such flag')"]
        return [sys.executable, "-c", SERVER, profile, str(port)]

    connection = Connection(f"http://127.0.0.1:{port}")
    made = RestartTarget(argv, dict(os.environ), connection, tmp_path, {"A": "one", "B": "two"}, 60.0)
    yield made
    made.close()


def running(target: RestartTarget) -> str:
    import httpx

    return httpx.get(f"{target.url}/model_info", trust_env=False).text


def test_each_arm_has_its_own_server_and_the_last_is_ended(target: RestartTarget) -> None:
    assert target.take(OFF) is True
    assert running(target) == "one"
    assert target.take(OFF) is False
    assert target.take(ON) is True
    assert running(target) == "two"
    target.close()
    assert not target.connection.alive()


def test_a_server_that_died_is_started_again(target: RestartTarget) -> None:
    target.take(OFF)
    for child in psutil.Process().children():
        if target.url.rpartition(":")[2] in child.cmdline():
            child.kill()
            child.wait()
    assert not target.connection.alive()
    assert target.take(OFF) is True
    assert target.connection.alive()


def test_a_server_that_does_not_start_is_shown_with_its_log(target: RestartTarget) -> None:
    target._profiles["B"] = "bad"
    with pytest.raises(NotReadyError, match="arm B did not start") as raised:
        target.take(ON)
    assert "no such flag" in raised.value.detail


def test_the_command_is_fastfill_serve() -> None:
    keys = ["--api-key-file", "K"]
    argv = serve_argv("python", model="M", tp=4, port=1, extra=["--log-level", "info"], longest_prompt=9, keys=keys)
    assert argv("off") == [
        "python", "-m", "fastfill", "serve", "--profile", "off", "--model", "M", "--tp", "4", "--port", "1",
        "--api-key-file", "K", "--longest-prompt", "9", "--", "--log-level", "info",
    ]  # fmt: skip


def test_sigterm_ends_it_in_order(tmp_path: Path) -> None:
    program = (
        "import time\nfrom pathlib import Path\nfrom fastfill.benchmark.ending import orderly\n"
        f"with orderly():\n    try:\n        Path({str(tmp_path / 'up')!r}).touch(); time.sleep(60)\n"
        f"    finally:\n        Path({str(tmp_path / 'back')!r}).touch()\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while not (tmp_path / "up").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    child.send_signal(signal.SIGTERM)
    child.wait(30)
    assert (tmp_path / "back").exists()
    before = signal.getsignal(signal.SIGTERM)
    with orderly():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_server_of_this_host_is_started_once_and_its_switch_put_back_before_it_ends(httpserver: HTTPServer) -> None:
    server = ContractServer(httpserver)
    done: list[str] = []

    class Started:
        url = server.url
        running = False

        def take(self, arm: arms.Arm) -> bool:
            done.append(f"take {arm.profile.name}")
            started, self.running = not self.running, True
            return started

        def close(self) -> None:
            done.append(f"end, path {server.path['path']}")

    start: Any = Started()
    target = OwnPathTarget(start, ON, PathTarget(Connection(server.url), "me@here"))
    assert [target.take(arm) for arm in (OFF, ON, OFF)] == [True, False, False]
    assert server.path["path"] == "off"
    target.close()
    assert done == ["take long-context"] * 3 + ["end, path on"]
