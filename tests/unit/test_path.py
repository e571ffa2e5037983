"""``fastfill path``: it turns the switch, and does not believe that it turned until it looks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_run import fastfill
from contract_server import ContractServer
from pytest_httpserver import HTTPServer

from fastfill.path import caller


@pytest.fixture
def server(httpserver: HTTPServer) -> ContractServer:
    return ContractServer(httpserver)


def test_off_then_status_then_on(server: ContractServer) -> None:
    ran = fastfill("path", "off", "--url", server.url, "--who", "ada", "--why", "odd answers, ticket 7")
    assert ran.code == 0
    assert ran.out.splitlines() == [
        "path: off",
        "who:  ada",
        "when: 2026-01-02T03:04:05+00:00",
        "why:  odd answers, ticket 7",
    ]
    assert "next forward pass" in ran.err
    shown = fastfill("path", "status", "--url", server.url, "--json")
    assert json.loads(shown.out) == {
        "schema": "fastfill.path/1",
        "url": server.url,
        "path": "off",
        "who": "ada",
        "why": "odd answers, ticket 7",
        "when": "2026-01-02T03:04:05+00:00",
    }
    ran = fastfill("path", "on", "--url", server.url, "--json")
    assert ran.code == 0 and json.loads(ran.out)["path"] == server.path["path"] == "on"
    assert server.path["who"] == caller() and "@" in caller()


def test_a_switch_that_never_moved(server: ContractServer) -> None:
    ran = fastfill("path", "status", "--url", server.url)
    assert (ran.code, ran.out) == (0, "path: on\n")


def test_an_order_that_did_not_take(server: ContractServer) -> None:
    server.path_sticks = False
    ran = fastfill("path", "off", "--url", server.url)
    assert ran.code == 1 and "the path is on, not off" in ran.err and "fastfill path status" in ran.err
    assert ran.out == ""


@pytest.mark.parametrize("verb", ["on", "off", "status"])
def test_no_plugin(server: ContractServer, verb: str) -> None:
    server.plugin = False
    ran = fastfill("path", verb, "--url", server.url)
    assert ran.code == 1 and "plugin is not attached" in ran.err and "next:" in ran.err


def test_key(server: ContractServer) -> None:
    server.key = "k"
    assert fastfill("path", "off", "--url", server.url).code == 2
    assert server.path["path"] == "on"
    assert fastfill("path", "off", "--url", server.url, env={"FASTFILL_API_KEY": "k"}).code == 0


def test_a_server_with_both_keys_turns_for_the_admin_key_alone(server: ContractServer, tmp_path: Path) -> None:
    """Its other pages answer to the ordinary key alone, so that the order needs both."""
    server.key, server.admin_key = "k", "boss"
    file = tmp_path / "admin"
    file.write_text("boss\n")
    env = {"FASTFILL_API_KEY": "k"}
    ran = fastfill("path", "off", "--url", server.url, env=env)
    assert ran.code == 2 and "--admin-api-key-file" in ran.err
    assert server.path["path"] == "on"
    assert fastfill("path", "off", "--url", server.url, "--admin-api-key-file", str(file), env=env).code == 0
    assert server.path["path"] == "off"
    assert fastfill("path", "on", "--url", server.url, env={**env, "FASTFILL_ADMIN_API_KEY_FILE": str(file)}).code == 0
    assert fastfill("path", "status", "--url", server.url, env=env).out.startswith("path: on")


def test_what_the_server_says_of_an_order_that_failed_is_shown(server: ContractServer) -> None:
    server.path_error = "the switch is where it was: No space left on device"
    ran = fastfill("path", "on", "--url", server.url)
    assert ran.code == 1 and "No space left on device" in ran.err and "FASTFILL_STATE_DIR" in ran.err


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_words_that_the_terminal_or_utf8_cannot_hold(server: ContractServer, encoding: str) -> None:
    command = [
        sys.executable,
        "-m",
        "fastfill",
        "path",
        "off",
        "--url",
        server.url,
        "--why",
        "grün ☃",
        "--who",
        b"a\xff",
    ]
    ran = subprocess.run(command, env={**os.environ, "PYTHONIOENCODING": encoding}, capture_output=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert b"path: off" in ran.stdout and b"Traceback" not in ran.stderr
    assert server.path["why"] == "grün ☃"


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (PermissionError(13, "Permission denied", "/some/file"), 4, ["Permission denied", "/some/file", "next:"]),
        (OSError(28, "No space left on device"), 4, ["No space left", "next:"]),
        (BrokenPipeError(32, "Broken pipe"), 1, []),
    ],
)
def test_what_the_system_refuses_is_an_error_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, raised: OSError, code: int, said: list[str]
) -> None:
    def app(**_: object) -> None:
        raise raised

    monkeypatch.setattr("fastfill.cli.app", app)
    ran = fastfill("path")
    assert ran.code == code and all(word in ran.err for word in said)


def test_unreachable_and_not_a_server(httpserver: HTTPServer) -> None:
    assert fastfill("path", "status", "--url", "http://127.0.0.1:9").code == 4
    httpserver.expect_request("/server_info").respond_with_data("<html>", content_type="text/html")
    assert fastfill("path", "off", "--url", httpserver.url_for("/")).code == 2


@pytest.mark.parametrize(
    "url", ["http://a..b", f"http://{'x' * 300}", "http://[::1", "http://h:99999", "h:1", "ftp://h"]
)
def test_what_is_no_url(url: str) -> None:
    ran = fastfill("path", "status", "--url", url)
    assert ran.code == 2 and "Traceback" not in ran.err and "next:" in ran.err


def test_usage() -> None:
    assert fastfill("path", "sideways", "--url", "http://h").code == 2
    assert fastfill("path", "off").code == 2
