"""A server that takes traffic: what the light proof sends it; and the control where no fallback may be asked for."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from contract_server import ContractServer
from evidence_maker import asm, attempt, evidence, one_pass, rank, rank_status, status
from hypothesis import given
from hypothesis import strategies as st
from prove_rig import prove, steps_without

from fastfill.proof import gather, layout, pace
from fastfill.proof.answers_send import compare
from fastfill.proof.load import load
from fastfill.proof.verdict import Verdict, decide
from fastfill.proof.wire import KernelCalls, Model, ServerFacts


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "WATCH_S", 0.2)
    monkeypatch.setattr(pace, "SPACE_S", 1.0)


@given(st.floats(0, 1e6, allow_nan=False), st.integers(2, 100_000))
def test_requests_stay_at_a_hundredth_of_the_traffic(traffic: float, most: int) -> None:
    allowed = pace.pace(traffic, most)
    assert 1 <= allowed.tokens <= most
    if allowed.space_s:
        assert allowed.tokens <= traffic * 0.01 * allowed.space_s * 1.000001
    else:
        assert traffic == 0 or traffic * 0.01 == 0


def test_a_busy_server_gets_a_probe_and_a_control_and_nothing_else(server: ContractServer) -> None:
    server.prompt_rate = 20_000.0
    start = time.monotonic()
    ran, document = prove(server, "--light", "--witness", "counters,log")
    elapsed = time.monotonic() - start
    assert (ran.code, document["verdict"], document["control"]["status"]) == (0, "FIRED", "passed")
    assert len(server.requests) == 2 and document["answers"]["status"] == "not_checked"
    sent = sum(len(body["input_ids"]) for body in server.requests)
    assert sent <= 0.01 * server.prompt_rate * elapsed * 1.1, "the watched rate is not exact"
    assert 100 < len(server.requests[0]["input_ids"]) <= 2048
    assert [one["witness"] for one in document["witnesses"]] == ["counters", "log"]
    assert "prompt tokens a second" in ran.err


def test_too_little_traffic_for_the_deadline_is_not_exercised(server: ContractServer) -> None:
    server.prompt_rate = 100.0
    ran, document = prove(server, "--light", "--deadline", "2")
    assert (ran.code, document["verdict"]) == (3, "NOT_EXERCISED")
    assert server.requests == []


def test_an_idle_server_is_not_kept_waiting(server: ContractServer) -> None:
    ran, document = prove(server, "--light")
    assert (ran.code, document["verdict"]) == (0, "FIRED")
    assert [len(body["input_ids"]) for body in server.requests] == [256, 256]


@pytest.fixture
def companions(server: ContractServer, monkeypatch: pytest.MonkeyPatch) -> ContractServer:
    monkeypatch.setattr(gather, "STEPS", steps_without(compare, load))
    server.allow_fallback = False
    return server


def test_a_cached_companion_is_the_control_where_no_fallback_may_be_forced(companions: ContractServer) -> None:
    ran, document = prove(companions)
    assert (ran.code, document["verdict"], document["control"]["status"]) == (0, "FIRED", "passed")
    assert "beside a cached prompt: prefix_radix" in document["control"]["detail"]
    first, second = [body for body in companions.requests if isinstance(body["rid"], list)]
    assert first["input_ids"][0] == second["input_ids"][0] and first["extra_key"][0] == second["extra_key"][0]
    assert len(set(second["extra_key"])) == 2 and second["input_ids"][1] != second["input_ids"][0]


def test_a_companion_that_fires_makes_it_invalid(companions: ContractServer) -> None:
    companions.control_ignored = True
    ran, document = prove(companions)
    assert (ran.code, document["verdict"], document["reason"]["id"]) == (1, "INVALID", "control_fired")


def test_a_companion_that_is_not_answered_in_time_leaves_the_proof_open(companions: ContractServer) -> None:
    release = threading.Event()
    companions.hang = lambda: isinstance(companions.requests[-1]["rid"], list) and release.wait(20)
    try:
        ran, document = prove(companions, "--deadline", "3")
    finally:
        release.set()
    assert (ran.code, document["verdict"], document["control"]["status"]) == (3, "NOT_EXERCISED", "not_run")
    assert len(companions.aborted) == 3, "the pair and the companion's first are withdrawn"


def test_companions_that_never_meet_make_no_control(companions: ContractServer) -> None:
    companions.meet = False
    ran, document = prove(companions, "--attempts", "3")
    assert (ran.code, document["verdict"], document["control"]["status"]) == (0, "FIRED", "not_possible")
    assert "did not meet" in document["control"]["detail"]
    assert len([body for body in companions.requests if isinstance(body["rid"], list)]) == 6


@pytest.mark.parametrize(
    ("info", "why"), [({"version": "0.5.23"}, "from SGLang 0.5.19 on"), ({"disable_radix_cache": True}, "radix cache")]
)
def test_where_no_control_is_possible_the_proof_says_so(
    companions: ContractServer, info: dict[str, Any], why: str
) -> None:
    companions.server_info = info
    _, document = prove(companions)
    assert (document["verdict"], document["control"]["status"]) == ("FIRED", "not_possible")
    assert why in document["control"]["detail"]


def with_draft(fired: int, layers: int = 1, **more: Any) -> Verdict:
    """A probe that fired, whose draft model made ``fired`` fast-path calls in one pass."""
    calls = (asm(fired),) if fired else (KernelCalls(fn="x", kernel="ck", head_dim=256, count=1),)
    mine = one_pass("p1", number=2, draft=True, calls=calls, **more)
    states = status(rank_status(draft_model=Model(attention_layers=layers, draft=True)))
    sent = (attempt("p1", (one_pass("p1"), mine)),)
    return decide(evidence(attempts=sent, status_before=states, status_after=states))


def test_a_draft_model_has_an_account_of_its_own() -> None:
    verdict = with_draft(1)
    assert verdict.name == "FIRED" and verdict.ranks[0].draft == (1, 1, 1, {})
    assert (verdict.ranks[0].expected, verdict.ranks[0].observed) == (2, 2), "the target's, apart"
    verdict = with_draft(0, reasons={"prefix_radix": 1})
    assert (verdict.name, verdict.reason and verdict.reason.id) == ("PARTIAL", "prefix_radix")
    assert "draft model 0 of 1" in verdict.summary


def test_ranks_by_the_servers_own_settings() -> None:
    def named(**more: Any) -> list[str]:
        return [str(one) for one in layout.ranks(ServerFacts(version="0.5.16", **more))]

    assert named(tp_size=2) == ["pp0 dp0 tp0", "pp0 dp0 tp1"]
    assert named(tp_size=1, dp_size=2) == ["pp0 dp0 tp0", "pp0 dp1 tp0"]
    assert named(tp_size=4, dp_size=2, enable_dp_attention=True) == [
        "pp0 dp0 tp0", "pp0 dp0 tp1", "pp0 dp1 tp2", "pp0 dp1 tp3",
    ]  # fmt: skip
    assert named(tp_size=1, pp_size=2) == ["pp0 dp0 tp0", "pp1 dp0 tp0"]


def test_ranks_on_other_nodes_are_unseen_and_not_fired() -> None:
    server = ServerFacts(version="0.5.16", tp_size=4, nnodes=2)
    made = evidence(tp=2, server=server)
    assert layout.unseen(made) == (rank(2), rank(3))
    assert decide(made).name == "INVALID"
    one_node = evidence(tp=2, server=ServerFacts(version="0.5.16", tp_size=4))
    verdict = decide(one_node)
    assert (verdict.name, verdict.reason and verdict.reason.id) == ("INVALID", "rank_without_witness")
    assert "tp2, pp0 dp0 tp3 never reported" in verdict.summary
