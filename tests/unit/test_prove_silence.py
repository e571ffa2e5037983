"""``fastfill prove`` in front of a server that hangs, goes silent or goes away, and an operator who interrupts it."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from cli_run import fastfill
from contract_server import ContractServer
from prove_rig import prove, silent, steps_without

from fastfill.errors import NotReadyError
from fastfill.proof import gather
from fastfill.proof.answers_send import compare
from fastfill.proof.load import load
from fastfill.proof.server import Server
from fastfill.proof.transport import Reply, Transport


@pytest.fixture(autouse=True)
def without_answers_and_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """These have tests of their own: test_prove_answers.py, test_prove_load.py."""
    monkeypatch.setattr(gather, "STEPS", steps_without(compare, load))


def test_busy_until_the_deadline(server: ContractServer) -> None:
    release = threading.Event()
    server.hang = lambda: release.wait(20)
    try:
        ran, document = prove(server, "--deadline", "3")
    finally:
        release.set()
    assert (ran.code, document["verdict"], document["reason"]["id"]) == (3, "NOT_EXERCISED", "deadline")
    assert document["elapsed_s"] < 15, "the server hangs for 20 s"
    assert server.aborted == [server.requests[0]["rid"]], "a request that nobody waits for is withdrawn"


def test_interrupted_by_the_operator(server: ContractServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Server, "generate", interrupt)
    ran = fastfill("prove", "--url", server.url)
    assert ran.code == 130 and "Traceback" not in ran.err
    assert len(server.aborted) == 1


def test_deadline_in_front_of_a_server_that_stops_answering(server: ContractServer) -> None:
    release = threading.Event()
    server.hang = lambda: (server.freeze.set(), release.wait(30))
    server.release = release
    try:
        ran, document = prove(server, "--deadline", "3")
    finally:
        release.set()
    assert (ran.code, document["verdict"], document["reason"]["id"]) == (3, "NOT_EXERCISED", "deadline")


@pytest.mark.parametrize(
    ("pages", "reason", "seen"),
    [
        ({"/fastfill/status": 0}, "server_silent", "nothing was sent: the server did not answer"),
        ({"/metrics": 0}, "server_silent", "nothing was sent"),
        ({"/fastfill/passes": 0}, "deadline", "1 probe(s) sent, none fair: the server did not answer"),
        ({"/fastfill/status": 1}, "server_silent", "2 of 2 calls of the probe fired, and then there was no answer"),
        ({"/fastfill/passes": 1}, "deadline", "the probe fired, its negative control did not run"),
        ({"/fastfill/status": 2}, "server_silent", "2 of 2 calls of the probe fired, and then there was no answer"),
        ({"/metrics": 1}, "server_silent", "2 of 2 calls of the probe fired, and then there was no answer"),
    ],
)
def test_a_page_that_is_not_answered_proves_nothing_and_takes_nothing_away(
    server: ContractServer, pages: dict[str, int], reason: str, seen: str
) -> None:
    with silent(server, pages):
        ran, document = prove(server)
    assert (ran.code, document["verdict"], document["reason"]["id"]) == (3, "NOT_EXERCISED", reason)
    assert seen in document["summary"], document["summary"]
    assert sum(one["observed_calls"] for one in document["ranks"]) == (2 if "fired" in seen else 0)


def test_what_was_seen_is_said_though_the_server_goes_silent(server: ContractServer) -> None:
    server.control_ignored = True
    with silent(server, {"/fastfill/status": 2}):
        ran, document = prove(server)
    assert (ran.code, document["verdict"], document["reason"]["id"]) == (1, "INVALID", "control_fired")


@pytest.mark.parametrize("path", ["/generate", "/fastfill/passes", "/fastfill/status"])
def test_a_server_that_goes_away_or_is_too_busy_has_not_been_exercised(
    server: ContractServer, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """A queue that is full, a gateway that gives up, a server that dies: 503, and no exit code of its own."""
    asked: list[str] = []
    send = Transport._send

    def gone(self: Transport, method: str, called: str, **more: Any) -> Reply:
        asked.append(called)
        if called == path and (path != "/fastfill/status" or asked.count(path) > 2):
            raise NotReadyError("the server is not ready: HTTP 503", where=self.url + called)
        return send(self, method, called, **more)

    monkeypatch.setattr(Transport, "_send", gone)
    ran, document = prove(server)
    assert (ran.code, document["verdict"]) == (3, "NOT_EXERCISED")
    assert "the server is not ready: HTTP 503" in document["summary"]
    assert ("2 of 2 calls of the probe fired" in document["summary"]) == (path == "/fastfill/status")


def test_a_tokenizer_that_does_not_answer_is_done_without(server: ContractServer) -> None:
    with silent(server, {"/tokenize": 0}):
        ran, document = prove(server)
    assert (ran.code, document["verdict"]) == (0, "FIRED")
    assert min(server.requests[0]["input_ids"]) >= 300
