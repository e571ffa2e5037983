"""tests/live passes where the proof does, and only there: without a server, or without a fair probe, nothing passes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from contract_server import ContractServer
from pytest_httpserver import HTTPServer

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def server() -> Iterator[ContractServer]:
    with HTTPServer(threaded=True) as running:
        yield ContractServer(running)


def live(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/live", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def test_a_good_server_passes_every_assertion(server: ContractServer) -> None:
    done = live("--url", server.url, "--prove", "--load 0")
    assert done.returncode == 0 and "5 passed" in done.stdout, done.stdout
    assert not any(isinstance(body["rid"], list) for body in server.requests)


def test_a_witness_that_was_asked_by_name_and_cannot_say_is_no_pass(server: ContractServer) -> None:
    done = live("--url", server.url, "--prove", "--load 0 --witness counters,log")
    assert done.returncode == 1 and "1 failed, 4 passed" in done.stdout, done.stdout


def test_a_probe_that_was_never_fair_passes_nothing_as_proven(server: ContractServer) -> None:
    server.own_prefix = [64] * 9
    done = live("--url", server.url, "--prove", "--attempts 2")
    assert done.returncode == 1 and "NOT_EXERCISED" in done.stdout
    assert "skipped" not in done.stdout


def test_no_server_and_no_url_are_no_pass() -> None:
    done = live("--url", "http://127.0.0.1:1")
    assert done.returncode == 1 and "5 failed" in done.stdout
    done = live()
    assert done.returncode != 0 and "--url" in done.stdout + done.stderr
    assert "5 errors" in done.stdout
