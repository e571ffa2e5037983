"""Several prompts at once: their share of the path, what stopped the rest, and the share that an operator wants."""

from __future__ import annotations

import pytest
from cli_run import fastfill
from contract_server import ContractServer
from evidence_maker import asm, attempt, evidence, one_pass
from prove_rig import prove, silent, steps_without

from fastfill.proof import gather
from fastfill.proof.answers_send import compare
from fastfill.proof.load import LoadEvidence, measure
from fastfill.proof.verdict import decide
from fastfill.proof.wire import KernelCalls


@pytest.fixture(autouse=True)
def without_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "STEPS", steps_without(compare))


def test_eight_prompts_at_once_are_the_default(server: ContractServer) -> None:
    ran, document = prove(server)
    (batch,) = [body for body in server.requests if isinstance(body["rid"], list)]
    assert len(batch["rid"]) == len(set(batch["extra_key"])) == 8
    assert {len(ids) for ids in batch["input_ids"]} == {2048} and len({tuple(ids) for ids in batch["input_ids"]}) == 8
    assert document["coverage"]["load"]["attention_work"] == document["coverage"]["load"]["tokens"] == 1.0
    assert (ran.code, document["verdict"], document["coverage"]["load"]["passes"]) == (0, "FIRED", 8)
    assert f"will send {2 * 2048 + 8 * 2048} prompt tokens" in ran.err
    assert "100.0% of the attention work on the path" in ran.err
    assert not any(one["rid"].startswith("fastfill-load-") for one in document["attempts"])


def test_a_load_that_nobody_asked_for_stays_small(server: ContractServer) -> None:
    server.context_len = 200_000
    prove(server, "--prompt-tokens", "30000")
    (batch,) = [body for body in server.requests if isinstance(body["rid"], list)]
    assert len(batch["rid"]) == 3, "100,000 tokens at most"
    server.requests.clear()
    prove(server, "--prompt-tokens", "60000")
    assert not [body for body in server.requests if isinstance(body["rid"], list)]


def test_what_stopped_the_rest_is_named_and_the_wanted_share_decides(server: ContractServer) -> None:
    server.whole = 2
    _, document = prove(server, "--load", "8")
    load = document["coverage"]["load"]
    assert (document["verdict"], load["attention_work"], load["stopped"]) == ("FIRED", 0.25, {"prefix_chunk": 0.75})
    ran, document = prove(server, "--load", "8", "--min-coverage", "0.5")
    assert (ran.code, document["verdict"], document["reason"]["id"]) == (1, "PARTIAL", "coverage_low")
    assert "25.0% of the attention work of 8 prompts at once, not 50.0%" in document["summary"]
    assert prove(server, "--load", "8", "--min-coverage", "0.25")[0].code == 0


def test_without_a_load_the_servers_whole_life_decides(server: ContractServer) -> None:
    assert prove(server, "--load", "0", "--min-coverage", "0.7")[0].code == 0
    ran, document = prove(server, "--load", "0", "--min-coverage", "0.8")
    assert (ran.code, document["reason"]["id"]) == (1, "coverage_low")
    assert "since the server started" in document["summary"]


def test_the_text_names_the_share(server: ContractServer) -> None:
    server.whole = 4
    ran = fastfill("prove", "--url", server.url)
    assert "load:     50.0% of the attention work, 50.0% of the prefill tokens: 8 prompts of 2048 at once" in ran.out
    assert "left the path, by attention work: prefix_chunk 50.0%" in ran.out


def test_a_pass_is_shared_by_its_prompts_and_strangers_are_left_out() -> None:
    """Work is ((p+e)^2 - p^2)/2: 100 and 50 tokens fired together, 50 more of the second did not."""
    rids = ("l-0", "l-1", "stranger")
    together = one_pass("l-0", rids=rids, prefix=(0, 0, 0), extend=(100, 50, 999))
    rest = one_pass(
        "l-1",
        number=2,
        prefix=(50,),
        extend=(50,),
        calls=(KernelCalls(fn="x", kernel="ck", head_dim=256, count=2),),
        reasons={"prefix_chunk": 2},
    )
    draft = one_pass("l-1", number=3, draft=True, calls=(asm(1),))
    sent = (attempt("l-0", (together,)), attempt("l-1", (together, rest, draft)))
    found = measure(LoadEvidence(prompts=2, tokens=100, attempts=sent))
    assert found.tokens == pytest.approx(150 / 200)
    assert found.attention_work == pytest.approx((5000 + 1250) / (5000 + 1250 + 3750))
    assert found.stopped == {"prefix_chunk": pytest.approx(3750 / 10000)}


def test_passes_are_counted_by_replica_and_not_by_rank() -> None:
    """Each data-parallel replica numbers its passes by itself; the ranks of one replica make the same pass."""
    sent = (
        attempt("l-0", (one_pass("l-0"),), (one_pass("l-0"),), dp=0),
        attempt("l-1", (one_pass("l-1"),), (one_pass("l-1"),), dp=1),
    )
    assert measure(LoadEvidence(prompts=2, tokens=400, attempts=sent)).passes == 2


def test_passes_that_the_server_does_not_tell_are_no_measurement(server: ContractServer) -> None:
    # Probe and control ask once each; the load asks then.
    with silent(server, {"/fastfill/passes": 2}):
        ran, document = prove(server, "--min-coverage", "0.5")
    assert (ran.code, document["verdict"], document["reason"]["id"]) == (3, "NOT_EXERCISED", "coverage_unknown")
    assert "/fastfill/passes" in document["coverage"]["load"]["problem"]


def test_a_load_without_an_answer_is_no_measurement() -> None:
    load = LoadEvidence(prompts=8, tokens=100, problem="they were not answered in time")
    assert decide(evidence(load=load)).name == "FIRED"
    verdict = decide(evidence(load=load, min_coverage=0.1))
    assert (verdict.name, verdict.reason and verdict.reason.id) == ("NOT_EXERCISED", "coverage_unknown")
