"""`fastfill health` against a server over HTTP: idle, busy, stuck, locked, gone."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_run import Ran, fastfill
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response


class Server:
    """A server whose tokens advance by ``pace`` at each look, and whose completions succeed or hang."""

    def __init__(self, http: HTTPServer) -> None:
        self.tokens = 100
        self.pace = 0
        self.hangs = False
        self.asked = 0
        self.url = http.url_for("")
        http.expect_request("/metrics").respond_with_handler(self.metrics)
        http.expect_request("/generate", method="POST").respond_with_handler(self.generate)
        http.expect_request("/abort_request", method="POST").respond_with_data("")

    def metrics(self, request: Request) -> Response:
        self.tokens += self.pace
        return Response(f'sglang:realtime_tokens_total{{mode="prefill_compute"}} {self.tokens}\n', 200)

    def generate(self, request: Request) -> Response:
        self.asked += 1
        assert request.json is not None and request.json["rid"].startswith("fastfill-health-")
        if self.hangs:
            import time

            time.sleep(1.5)
        return Response('{"text": "x", "meta_info": {"prompt_tokens": 1}}', 200, content_type="application/json")


@pytest.fixture
def server(httpserver: HTTPServer) -> Server:
    return Server(httpserver)


def look(server: Server, place: Path) -> Ran:
    # A server that hangs is not waited for; one that answers may be slow on a busy machine.
    wait = "0.5" if server.hangs else "20"
    return fastfill("health", "--url", server.url, "--state-dir", str(place), "--wait", wait)


def test_an_idle_server_completes_one_token(server: Server, tmp_path: Path) -> None:
    assert look(server, tmp_path).code == 0
    assert look(server, tmp_path).code == 0
    assert server.asked == 2


def test_a_busy_server_is_not_asked_for_more(server: Server, tmp_path: Path) -> None:
    look(server, tmp_path)
    server.pace, server.hangs, before = 50, True, server.asked
    ran = look(server, tmp_path)
    assert (ran.code, server.asked) == (0, before)
    assert "50 tokens since the last look" in ran.out


def test_tokens_while_a_completion_waits_are_health_too(server: Server, tmp_path: Path) -> None:
    server.pace, server.hangs = 50, True
    ran = look(server, tmp_path)
    assert ran.code == 0
    assert "while a completion waited" in ran.out


def test_a_stuck_server_is_sick(server: Server, tmp_path: Path) -> None:
    server.hangs = True
    ran = look(server, tmp_path)
    assert ran.code == 1
    assert "no token was worked on" in ran.err and "next:  look at the server's log" in ran.err


def test_a_restarted_servers_counters_are_no_progress(server: Server, tmp_path: Path) -> None:
    look(server, tmp_path)
    server.tokens, server.hangs = 5, True
    assert look(server, tmp_path).code == 1


def test_no_server_is_sick(tmp_path: Path) -> None:
    ran = fastfill("health", "--url", "http://127.0.0.1:9", "--state-dir", str(tmp_path))
    assert ran.code == 1 and "next:  wait while the model loads" in ran.err
