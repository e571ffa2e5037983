"""Saboteurs in real servers and in front of them, one of each kind; all of them run by bench/saboteurs.py."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import saboteurs
from client import Client, prompt

import saboteur_proxy
from fastfill.lab import server
from fastfill.lab.server import LabServer
from fastfill.lab.spec import LabSpec
from fastfill.proof.answers import MEAN_BOUND
from fastfill.proof.answers_compare import difference
from fastfill.proof.answers_seen import Said
from fastfill.proof.answers_send import TOKENS, TOP, top_of
from fastfill.proof.sent import Attempt
from ports import free_port

Start = Callable[[LabSpec], LabServer]
ROWS: list[dict[str, Any]] = json.loads((Path(__file__).resolve().parents[1] / "data" / "saboteurs.json").read_text())
ALONE = [row for row in ROWS if row.get("real") and not row.get("second")]
SHORTER = ("--prompt-tokens", "1100")


@pytest.fixture
def dense(lab_server: Start) -> Iterator[LabServer]:
    yield lab_server(saboteurs.spec())
    saboteurs.say("")


@pytest.fixture
def needle(lab_server: Start) -> Iterator[LabServer]:
    yield lab_server(saboteurs.spec(model="needle"))
    saboteurs.say("")


def judged(url: str) -> tuple[str, str, int]:
    code, document, _ = saboteurs.prove(url, *SHORTER)
    return document["verdict"], (document["reason"] or {}).get("id", ""), code


@pytest.mark.server("saboteur dense")
@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in ROWS if row.get("test")])
def test_in_the_server(dense: LabServer, row: dict[str, Any]) -> None:
    saboteurs.say(row["words"])
    assert judged(dense.url) == (row["verdict"], row["reason"], int(row["verdict"] != "FIRED"))


@pytest.mark.server("saboteur dense")
@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in ALONE])
def test_in_front_of_the_server(dense: LabServer, row: dict[str, Any]) -> None:
    with saboteur_proxy.running(getattr(saboteur_proxy, row["proxy"])(dense.url)) as url:
        assert judged(url) == (row["verdict"], row["reason"], 1)


@pytest.fixture(scope="module")
def flag_off() -> Iterator[LabServer]:
    """A second server, as a load balancer has it behind itself: its flag is off."""
    with server.start(LabSpec(profile="off", port=free_port())) as running:
        yield running


@pytest.mark.server("saboteur dense")
@pytest.mark.parametrize("id", ["balancer", "restart-behind-proxy"])
def test_in_front_of_two_servers(dense: LabServer, flag_off: LabServer, id: str) -> None:
    (row,) = (row for row in ROWS if row["id"] == id)
    assert row["second"] == {"profile": flag_off.spec.profile}
    with saboteur_proxy.running(getattr(saboteur_proxy, row["proxy"])(dense.url, flag_off.url)) as url:
        assert judged(url) == (row["verdict"], row["reason"], 1)


@pytest.mark.server("saboteur dense")
def test_its_own_prefix_hides_a_kernel_that_a_clean_fallback_shows(dense: LabServer) -> None:
    """Why the comparison is as it is: the repeat reads the keys and values that the wrong pass wrote."""
    saboteurs.say("noncausal")
    client, ids = Client(dense), prompt(289)

    def ask(rid: str) -> Said:
        answer = client.generate(
            ids, rid=rid, new=TOKENS, return_logprob=True, top_logprobs_num=TOP, extra_key=rid[-8:]
        )
        attempt = Attempt(rid=rid, prompt_tokens=289, answer="answered")
        return Said(attempt=attempt, tokens=tuple(answer["output_ids"]), top=top_of(answer))

    wrong, repeat = ask("wrong-own-pref"), ask("again-own-pref")
    clean = ask("fastfill-fallback-own-clean-1")
    assert client.passes("again-own-pref")[0]["prefix"] == [288]
    assert difference(wrong, repeat).mean < MEAN_BOUND / 2
    assert difference(wrong, clean).mean > MEAN_BOUND


@pytest.mark.server("saboteur needle")
def test_the_needle_model_finds_everything_and_loses_it_under_a_wrong_kernel(needle: LabServer) -> None:
    code, document, _ = saboteurs.prove(needle.url, *SHORTER)
    logprobs, needles = document["answers"]["checks"]
    assert (code, logprobs["status"], needles["status"]) == (0, "right", "right")
    assert needles["figures"] == {"needles": 5.0, "found": 5.0, "lost": 0.0}
    saboteurs.say("unwritten_rows")
    code, document, _ = saboteurs.prove(needle.url, *SHORTER)
    logprobs, needles = document["answers"]["checks"]
    assert (code, document["verdict"]) == (1, "WRONG")
    assert (logprobs["status"], needles["status"]) == ("wrong", "wrong")
