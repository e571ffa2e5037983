"""The saboteurs of tests/data/saboteurs.json that need no real server: each gets the verdict and reason it deserves.

Kind ``evidence`` is a proof as it would have been recorded, ``proxy`` a real proxy in front of the pretended server.
Those on real servers are in tests/lab/test_saboteurs.py and bench/saboteurs.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_run import fastfill
from contract_server import ContractServer
from evidence_maker import TOKENS, asm, attempt, counters_for, evidence, one_pass, rank_status, status, with_value
from pytest_httpserver import HTTPServer

import saboteur_proxy
from fastfill.proof import visit
from fastfill.proof.answers_seen import AnswersEvidence, Hidden, Pair, Said, Search
from fastfill.proof.evidence import Evidence
from fastfill.proof.verdict import EXIT_CODES, decide
from fastfill.proof.wire import DeploymentStatus, Model, PathState, ServerFacts
from sglang_fastfill.conditions import CONDITIONS

ROWS: list[dict[str, Any]] = json.loads((Path(__file__).resolve().parents[1] / "data" / "saboteurs.json").read_text())
CONTROL = "fastfill-fallback-probe-1"
FALLBACK = "fastfill-fallback-answer-1"
FORCED: dict[str, Any] = {"fired": 0, "reasons": {"forced_fallback": 2}}
FACTS: dict[str, Any] = {"version": "0.5.16", "tp_size": 1}


def of_kind(kind: str) -> list[Any]:
    return [pytest.param(row, id=row["id"]) for row in ROWS if row["kind"] == kind]


def fired(**more: Any) -> Evidence:
    """One probe with this pass."""
    return evidence(attempts=(attempt("p1", (one_pass("p1", **more),)),))


def rank(**more: Any) -> Evidence:
    """A good proof of a rank that says this of itself."""
    states = status(rank_status(**more))
    return evidence(status_before=states, status_after=states)


def failing(condition: str) -> Evidence:
    return rank(deployment={condition: DeploymentStatus(status="fail", value="x")})


def guesses(shift: float | None) -> tuple[tuple[int, float | None], ...]:
    return tuple((token, None if shift is None else -1.0 - token - shift) for token in range(5))


def answered(ours: float | None, *, fallback: dict[str, Any] | None = None, **more: Any) -> Evidence:
    fast = Said(attempt=attempt("a1", (one_pass("a1", number=3),)), tokens=(1,), top=(guesses(ours),))
    passed = one_pass(FALLBACK, **{"number": 4, **FORCED, **(fallback or {})})
    theirs = Said(attempt=attempt(FALLBACK, (passed,)), tokens=(1,), top=(guesses(0.0),))
    seen = AnswersEvidence(**{"prompts": 1, "pairs": (Pair(fast=fast, fallback=theirs),), **more})
    return with_counters(evidence(answers=seen))


def with_counters(proof: Evidence) -> Evidence:
    return proof.model_copy(update={"counters_after": counters_for(proof.sent())})


def lost_needles() -> Evidence:
    def said(rid: str, text: str, **more: Any) -> Said:
        return Said(attempt=attempt(rid, (one_pass(rid, number=5, **more),)), text=text)

    hidden = tuple(Hidden(depth=depth, wanted=code) for depth, code in ((0.1, "11111"), (0.9, "22222")))
    search = Search(
        kind="words", hidden=hidden, fast=said("a2", "?"), fallback=said(FALLBACK, "11111, 22222", **FORCED)
    )
    return answered(0.0, searches=(search,))


def own_prefix() -> Evidence:
    cached = one_pass(FALLBACK, 0, number=4, prefix=(TOKENS - 1,), extend=(1,), reasons={"prefix_radix": 2})
    seen = AnswersEvidence(prompts=1, spoiled=(attempt(FALLBACK, (cached,)),))
    return with_counters(evidence(answers=seen))


def later_chunk() -> Evidence:
    passes = one_pass("p1", extend=(256,)), one_pass("p1", number=2, prefix=(256,), extend=(TOKENS - 256,))
    return evidence(attempts=(attempt("p1", passes),))


def beside_a_prefix() -> Evidence:
    spoiled = one_pass("p1", rids=("p1", "x"), prefix=(0, 16), extend=(TOKENS, 9))
    return evidence(attempts=(attempt("p1", (spoiled,)), attempt("p2", (one_pass("p2", number=2),))))


def too_large() -> Evidence:
    states = status(rank_status(model=Model(attention_layers=2, num_attention_heads=32, num_key_value_heads=2)))
    one = attempt("p1", (one_pass("p1", extend=(300_000,)),), prompt_tokens=300_000)
    return evidence(attempts=(one,), status_before=states, status_after=states)


def thrown_switch() -> Evidence:
    off = status(rank_status(), path=PathState(path="off", who="ada"))
    return evidence(status_before=off, status_after=off)


def second_server() -> Evidence:
    return evidence(status_after=status(rank_status(pid=7)))


def flag_off_counters_rise() -> Evidence:
    proof = evidence(attempts=(attempt("p1", (one_pass("p1", 0, reasons={"flag_off": 2}),)),), controls=())
    always = counters_for((attempt("x", (one_pass("x", 900),)), *proof.attempts))
    return proof.model_copy(update={"counters_before": with_value(always, 10), "counters_after": always})


MAKERS: dict[str, Callable[[], Evidence]] = {
    "gate-ignores-backend_not_aiter": lambda: rank(backend="TritonAttnBackend"),
    "gate-ignores-unsupported_topology": lambda: evidence(server=ServerFacts(**FACTS, nnodes=2)),
    "gate-ignores-flag_off": lambda: rank(flag=False),
    "gate-ignores-operator_off": thrown_switch,
    **{
        f"gate-ignores-{id}": lambda id=id: failing(id)  # type: ignore[misc]
        for id in ("arch_not_gfx950", "kernel_missing", "kernel_broken", "mla", "context_parallel", "rival_path")
    },
    "gate-ignores-ck_disabled": lambda: fired(calls=(asm(2, kernel="triton"),)),
    "gate-ignores-head_dim_not_256": lambda: fired(calls=(asm(2, head_dim=128),)),
    "gate-ignores-gqa_ratio": lambda: rank(
        model=Model(attention_layers=2, num_attention_heads=12, num_key_value_heads=2)
    ),
    "gate-ignores-sliding_window": lambda: fired(fired=3),
    "gate-ignores-attention_sinks": lambda: answered(0.3),
    "gate-ignores-logit_softcap": lambda: answered(0.2),
    "gate-ignores-cross_attention": lambda: answered(1.0),
    "gate-ignores-kv_dtype_not_fp8": lambda: evidence(server=ServerFacts(**FACTS, kv_cache_dtype="bfloat16")),
    "gate-ignores-no_kv_input": lambda: evidence(
        attempts=(attempt("p1", answer="refused", detail="HTTP 500: FastPathError"),), controls=()
    ),
    "gate-ignores-graph_capture": lambda: fired(calls=()),
    "gate-ignores-not_extend": lambda: fired(mode="DRAFT_EXTEND"),
    "gate-ignores-no_prefix_info": lambda: fired(prefix=()),
    "gate-ignores-prefix_mixed": lambda: fired(mode="MIXED"),
    "gate-ignores-prefix_chunk": later_chunk,
    "gate-ignores-prefix_radix": beside_a_prefix,
    "gate-ignores-batch_too_large": too_large,
    "gate-ignores-forced_fallback": lambda: evidence(controls=(attempt(CONTROL, (one_pass(CONTROL, number=2),)),)),
    "fires-on-one-layer": lambda: fired(fired=1),
    "fires-on-rank-0": lambda: evidence(tp=2, attempts=(attempt("p1", (one_pass("p1"),), (one_pass("p1", 0),)),)),
    "counters-never": lambda: evidence(counters_after=evidence().counters_before),
    "counters-always": flag_off_counters_rise,
    "ring-always": lambda: evidence(controls=(attempt(CONTROL, (one_pass(CONTROL, number=2),)),)),
    "plugin-missing": lambda: evidence(status_before=None),
    "plugin-on-rank-0": lambda: evidence(server=ServerFacts(**FACTS | {"tp_size": 2})),
    "hook-missing": lambda: rank(hooks={"a": True, "b": False}),
    "metrics-off": lambda: evidence(counters_before=None),
    "other-model": lambda: evidence(config_layers=4),
    "restart": second_server,
    "hd128-as-256": lambda: rank(model=Model(attention_layers=2, head_dim=128)),
    "own-prefix": own_prefix,
    "fallback-fires": lambda: answered(0.0, fallback={"fired": 2, "reasons": {}}),
    "nan": lambda: answered(None),
    "needles": lost_needles,
}


def test_every_row_is_told_apart_and_made() -> None:
    ids = [row["id"] for row in ROWS]
    assert len(ids) == len(set(ids)) >= 25
    assert {row["id"] for row in ROWS if row["kind"] == "evidence"} == MAKERS.keys()
    assert {f"gate-ignores-{condition.id}" for condition in CONDITIONS} <= MAKERS.keys()
    assert all(row["verdict"] in EXIT_CODES or row["id"] == "start-raises" for row in ROWS)


@pytest.mark.parametrize("row", of_kind("elsewhere"))
def test_what_other_tests_run_is_there(row: dict[str, Any]) -> None:
    file, _, name = row["where"].partition("::")
    text = (Path(__file__).resolve().parents[2] / file).read_text()
    assert f"def {name}(" in text
    assert row["reason"] in text or row["verdict"] in text


@pytest.mark.parametrize("row", of_kind("evidence"))
def test_recorded(row: dict[str, Any]) -> None:
    verdict = decide(MAKERS[row["id"]]())
    assert (verdict.name, verdict.reason.id if verdict.reason else "") == (row["verdict"], row["reason"])
    assert verdict.exit_code != 0


def test_the_good_proof_that_they_spoil_is_a_good_one() -> None:
    assert decide(evidence()).name == decide(answered(0.0)).name == decide(rank()).name == "FIRED"


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ContractServer, ContractServer]]:
    """Two servers with processes of their own; the second one's flag is off and its model has other layers."""
    monkeypatch.setattr(visit, "SETTLE_S", 0.3)
    with HTTPServer() as one, HTTPServer() as two:
        other = ContractServer(two, reason="flag_off", pids=lambda rank: 900 + rank, layers=3)
        other.status_extra = {"flag": False}
        yield ContractServer(one), other


@pytest.mark.parametrize("row", of_kind("proxy"))
def test_behind_a_proxy(servers: tuple[ContractServer, ContractServer], row: dict[str, Any]) -> None:
    proxy = getattr(saboteur_proxy, row["proxy"])(*(server.url for server in servers))
    with saboteur_proxy.running(proxy) as url:
        ran = fastfill("prove", "--url", url, "--json")
    document = json.loads(ran.out)
    assert (document["verdict"], document["reason"]["id"], ran.code) == (row["verdict"], row["reason"], 1)


def test_an_honest_proxy_is_no_saboteur(servers: tuple[ContractServer, ContractServer]) -> None:
    with saboteur_proxy.running(saboteur_proxy.Proxy(servers[0].url)) as url:
        assert fastfill("prove", "--url", url, "--json").code == 0


@pytest.mark.parametrize("dtype", ["", "auto", "fp8_e4m3", "fp8_e5m2"])
def test_every_way_to_an_fp8_cache_is_believed(dtype: str) -> None:
    """`auto` takes it from the checkpoint, and HIP stores either fp8 format as e4m3."""
    assert decide(evidence(server=ServerFacts(**FACTS, kv_cache_dtype=dtype))).name == "FIRED"
