"""Every verdict from recorded evidence: one good proof, spoiled in one place at a time."""

from __future__ import annotations

from typing import Any

import pytest
from evidence_maker import TOKENS, asm, attempt, counters_for, evidence, one_pass, rank_status, status, with_value
from hypothesis import given
from hypothesis import strategies as st

from fastfill.proof.evidence import Evidence
from fastfill.proof.findings import FINDINGS, find, first_reason
from fastfill.proof.soundness import identity
from fastfill.proof.verdict import EXIT_CODES, decide, targets
from fastfill.proof.wire import DeploymentStatus, Model, Pass, PathState, ServerFacts
from sglang_fastfill.conditions import BY_ID, CONDITIONS

CONTROL = "fastfill-fallback-probe-1"


def judged(**more: Any) -> tuple[str, str]:
    verdict = decide(evidence(**more))
    return verdict.name, verdict.reason.id if verdict.reason else ""


def probe(fired: int = 2, **more: Any) -> dict[str, Any]:
    """Evidence whose only probe had this pass."""
    return {"attempts": (attempt("p1", (one_pass("p1", fired, **more),)),)}


def shared(rid: str = "x", prefix: int = 0, **more: Any) -> dict[str, Any]:
    return {"rids": ("p1", rid), "prefix": (0, prefix), "extend": (TOKENS, 9), **more}


def test_fired_on_one_rank_and_on_two() -> None:
    assert judged() == ("FIRED", "")
    assert judged(tp=2) == ("FIRED", "")
    assert len(decide(evidence(tp=2)).ranks) == 2


@pytest.mark.parametrize("condition", [one.id for one in CONDITIONS if one.scope == "deployment"])
def test_not_fired_for_each_deployment_condition(condition: str) -> None:
    assert judged(**probe(0, reasons={condition: 2}), controls=()) == ("NOT_FIRED", condition)


@pytest.mark.parametrize("condition", [one.id for one in CONDITIONS if one.scope == "batch"])
def test_not_fired_for_each_batch_condition_when_the_probe_was_alone(condition: str) -> None:
    assert judged(**probe(0, reasons={condition: 2}), controls=()) == ("NOT_FIRED", condition)


def test_the_first_condition_in_the_tables_order_is_the_reason() -> None:
    reasons = {"prefix_chunk": 1, "flag_off": 1, "kv_dtype_not_fp8": 2, "from_the_future": 9}
    assert judged(**probe(0, reasons=reasons)) == ("NOT_FIRED", "flag_off")
    assert first_reason({"from_the_future"}) == "from_the_future" and find("from_the_future").meaning


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ({"flag": False}, "flag_off"),
        ({"backend": "TritonAttnBackend", "patched": False}, "backend_not_aiter"),
        ({"patched": False}, "unpatched"),
        ({"patched": False, "flag": False}, "unpatched"),
        ({"patched": False, "sglang": "0.5.23", "flag": False}, "unexplained"),
        ({"deployment": {"gqa_ratio": DeploymentStatus(status="fail", value="6")}}, "gqa_ratio"),
        ({"deployment": {"gqa_ratio": DeploymentStatus(status="pass", value="8")}}, "unexplained"),
        ({"model": Model(attention_layers=0)}, "no_attention_layers"),
    ],
)
def test_a_gate_that_was_never_asked_leaves_the_word_to_the_status(state: dict[str, Any], reason: str) -> None:
    assert judged(**probe(0), status_after=status(rank_status(**state))) == ("NOT_FIRED", reason)


def test_the_kill_switch_is_seen_in_the_status_too() -> None:
    off = status(rank_status(), path=PathState(path="off", who="ada"))
    assert judged(**probe(0), status_after=off) == ("NOT_FIRED", "operator_off")


def test_a_fix_is_one_that_can_be_had() -> None:
    """The kill switch is no help where it is thrown already and does not work, or where no gate looks at it."""
    off = status(rank_status(), path=PathState(path="off", who="ada"))
    thrown = decide(evidence(status_before=off, status_after=off))
    assert thrown.reason is not None and thrown.reason.id == "gate_ignores_condition"
    assert "--profile off" in thrown.reason.fix and "path off" not in thrown.reason.fix
    bare = status(rank_status(patched=False, sglang="0.5.23"))
    server = ServerFacts(version="0.5.23", tp_size=1, kv_cache_dtype="bfloat16")
    unpatched = decide(evidence(status_before=bare, status_after=bare, server=server))
    assert unpatched.reason is not None and unpatched.reason.id == "gate_ignores_condition"
    assert "no switch" in unpatched.reason.fix and "path off" not in unpatched.reason.fix
    plain = decide(evidence(server=server.model_copy(update={"version": "0.5.16"})))
    assert plain.reason is not None and "fastfill path off" in plain.reason.fix


@pytest.mark.parametrize("calls", [(asm(2, head_dim=128),), (asm(2, kernel="ck"),), (asm(2, kernel="triton"),), ()])
def test_other_kernels_and_head_dims_do_not_count(calls: Any) -> None:
    assert judged(**probe(calls=calls)) == ("NOT_FIRED", "unexplained")


def test_a_drafts_calls_do_not_count() -> None:
    passes = (one_pass("p1", 0), one_pass("p1", 2, number=2, draft=True))
    assert judged(attempts=(attempt("p1", passes),)) == ("NOT_FIRED", "unexplained")


def test_a_verify_pass_has_no_lengths_and_does_not_count() -> None:
    passes = (one_pass("p1"), one_pass("p1", 0, number=2, mode="TARGET_VERIFY", prefix=(), extend=()))
    assert judged(attempts=(attempt("p1", passes),)) == ("FIRED", "")


def test_partial_names_layers_and_ranks() -> None:
    assert judged(**probe(1)) == ("PARTIAL", "unexplained")
    two = (attempt("p1", (one_pass("p1"),), (one_pass("p1", 0, reasons={"flag_off": 2}),)),)
    verdict = decide(evidence(tp=2, attempts=two))
    assert (verdict.name, verdict.reason and verdict.reason.id) == ("PARTIAL", "flag_off")
    assert "tp1 0 of 2" in verdict.summary and "tp0" not in verdict.summary
    unseen = (attempt("p1", (one_pass("p1"),), ()),)
    verdict = decide(evidence(tp=2, attempts=unseen))
    assert (verdict.name, verdict.reason and verdict.reason.id) == ("PARTIAL", "rank_unseen")


def test_a_split_prompt_owes_one_call_a_layer_and_pass() -> None:
    first, second = (
        one_pass("p1", extend=(256,)),
        one_pass("p1", 0, number=2, prefix=(256,), extend=(TOKENS - 256,), reasons={"prefix_chunk": 2}),
    )
    assert judged(attempts=(attempt("p1", (first, second)),)) == ("PARTIAL", "prefix_chunk")
    gathered = second.model_copy(update={"calls": (asm(2),), "reasons": {}})
    both = (attempt("p1", (first, gathered)),)
    assert judged(attempts=both, status_after=status(rank_status(sglang="0.5.19"))) == ("FIRED", "")
    assert judged(attempts=both) == ("INVALID", "gate_ignores_condition"), "older ones cannot reach a prefix"


VOID: list[dict[str, Any]] = [
    shared(prefix=16, fired=0),
    shared(prefix=16, reasons={"prefix_radix": 2}, fired=0),
    shared(rid="fastfill-fallback-other", reasons={"forced_fallback": 2}, fired=0),
    shared(reasons={"batch_too_large": 2}, fired=0),
    {"prefix": (16,), "extend": (TOKENS - 16,), "reasons": {"prefix_radix": 2}, "fired": 0},
]


@pytest.mark.parametrize("spoiled", VOID)
def test_a_spoiled_probe_is_void_and_the_next_one_counts(spoiled: dict[str, Any]) -> None:
    first = attempt("p1", (one_pass("p1", **spoiled),))
    assert judged(attempts=(first,), controls=()) == ("NOT_EXERCISED", "no_fair_trial")
    second = attempt("p2", (one_pass("p2", number=2),))
    assert judged(attempts=(first, second)) == ("FIRED", "")


def test_a_probe_split_by_other_traffic_is_void() -> None:
    first = one_pass("p1", **shared(extend=(100, 300)))
    second = one_pass("p1", 0, number=2, prefix=(100,), extend=(TOKENS - 100,), reasons={"prefix_chunk": 2})
    assert judged(attempts=(attempt("p1", (first, second)),)) == ("NOT_EXERCISED", "no_fair_trial")


def test_company_without_a_prefix_is_harmless() -> None:
    assert judged(**probe(**shared(rid="HEALTH_CHECK_1"))) == ("FIRED", "")
    assert judged(**probe(0, **shared(reasons={"flag_off": 2}))) == ("NOT_FIRED", "flag_off")


@pytest.mark.parametrize(
    ("last", "verdict", "reason"),
    [
        ({"answer": "timed_out"}, "NOT_EXERCISED", "deadline"),
        ({"answer": "refused", "detail": "too long"}, "NOT_EXERCISED", "probe_refused"),
        ({}, "INVALID", "probe_unseen"),
    ],
)
def test_no_probe_pass(last: dict[str, Any], verdict: str, reason: str) -> None:
    assert judged(attempts=(attempt("p1", **last),), controls=()) == (verdict, reason)


def test_nothing_sent() -> None:
    assert judged(attempts=(), controls=()) == ("NOT_EXERCISED", "deadline")
    assert judged(attempts=(), controls=(), not_sent="9000 > 4096") == ("NOT_EXERCISED", "prompt_too_long")


def test_a_shortened_prompt_is_no_proof() -> None:
    assert judged(**probe(extend=(TOKENS - 1,))) == ("INVALID", "probe_rewritten")


INVALID: list[tuple[dict[str, Any], str]] = [
    ({"status_before": None}, "plugin_not_attached"),
    ({"counters_before": None}, "metrics_off"),
    ({"counters_after": None}, "metrics_off"),
    ({"status_after": None}, "several_servers"),
    ({"server": ServerFacts(version="0.5.16", tp_size=1, nnodes=2)}, "topology_refused"),
    ({"server": ServerFacts(version="0.5.16", tp_size=1, pp_size=2)}, "topology_refused"),
    ({"server": ServerFacts(version="0.5.16", tp_size=1, disaggregation_mode="prefill")}, "topology_refused"),
    ({"server": ServerFacts(version="0.5.16", tp_size=2)}, "rank_without_witness"),
    ({"status_after": status(rank_status(hooks={"a": True, "b": False}))}, "hook_missing"),
    ({"status_after": status(rank_status(hooks={}))}, "hook_missing"),
    ({"status_after": status(rank_status(pid=7))}, "several_servers"),
    ({"status_after": status(rank_status(1))}, "several_servers"),
    ({"config_layers": 3}, "layers_disagree"),
    (probe(3), "too_many_calls"),
    (probe(2, reasons={"prefix_radix": 2}), "gate_contradicts_witness"),
    (probe(1, reasons={"prefix_radix": 2}), "gate_contradicts_witness"),
    ({"controls": (attempt(CONTROL, (one_pass(CONTROL, 2, number=2),)),)}, "control_fired"),
    ({"controls": (attempt(CONTROL, (one_pass(CONTROL, 1, number=2),)),)}, "control_fired"),
    ({"controls": (attempt(CONTROL, (one_pass(CONTROL, 0, number=2),)),)}, "control_unexplained"),
    (
        {"controls": (attempt(CONTROL, (one_pass(CONTROL, 0, number=2, reasons={"prefix_radix": 2}),)),)},
        "control_unexplained",
    ),
    ({"controls": (attempt(CONTROL),)}, "probe_unseen"),
]


@pytest.mark.parametrize(("spoiled", "reason"), INVALID)
def test_invalid(spoiled: dict[str, Any], reason: str) -> None:
    assert judged(**spoiled) == ("INVALID", reason)


def test_counters_must_have_risen_by_what_the_ring_reports() -> None:
    good = evidence()
    assert good.counters_after is not None
    for after, reason in (
        (with_value(good.counters_after, 10), "counters_contradict_ring"),
        (with_value(good.counters_after, 11), "counters_contradict_ring"),
        (with_value(good.counters_after, 5), "several_servers"),
        (with_value(good.counters_after, 900), ""),
    ):
        verdict = decide(good.model_copy(update={"counters_after": after}))
        assert (verdict.reason.id if verdict.reason else "") == reason
    verdict = decide(good.model_copy(update={"counters_after": with_value(good.counters_after, 10)}))
    assert verdict.witnesses[0].says == "contradicts"


def test_a_pass_with_two_of_our_requests_is_owed_once() -> None:
    both = Pass(number=1, rids=("p1", "p2"), prefix=(0, 0), extend=(TOKENS, TOKENS), calls=(asm(2),))
    attempts = (attempt("p1", (both,)), attempt("p2", (both,)))
    once = counters_for((attempts[0], evidence().controls[0]))
    assert judged(attempts=attempts, counters_before=with_value(once, 10), counters_after=once) == ("FIRED", "")


def test_a_hook_without_a_function_is_no_contradiction_when_nothing_fired() -> None:
    state = rank_status(
        hooks={"a": False, "b": True}, deployment={"kernel_missing": DeploymentStatus(status="fail", value="none")}
    )
    gone = status(state)
    assert judged(**probe(0, reasons={"kernel_missing": 2}), status_after=gone) == ("NOT_FIRED", "kernel_missing")
    assert judged(status_after=gone) == ("INVALID", "hook_missing")


def test_layers_that_never_can_fire_do_not_contradict_those_that_do() -> None:
    assert judged(**probe(2, reasons={"sliding_window": 3})) == ("FIRED", "")


def test_control_that_could_not_be_had() -> None:
    assert decide(evidence(controls=(), no_control="not allowed")).control.status == "not_possible"
    assert judged(controls=(), no_control="not allowed") == ("FIRED", "")
    assert judged(controls=()) == ("NOT_EXERCISED", "deadline")
    assert judged(controls=(attempt(CONTROL, answer="timed_out"),)) == ("NOT_EXERCISED", "deadline")


def test_a_spoiled_control_is_sent_again() -> None:
    company = {"rids": (CONTROL, "x"), "prefix": (0, 16), "extend": (TOKENS, 1), "reasons": {"prefix_radix": 2}}
    spoiled = attempt(CONTROL, (one_pass(CONTROL, 0, number=2, **company),))
    again = attempt(CONTROL + "b", (one_pass(CONTROL + "b", 0, number=3, reasons={"forced_fallback": 2}),))
    assert judged(controls=(spoiled,)) == ("NOT_EXERCISED", "deadline")
    assert judged(controls=(spoiled, again)) == ("FIRED", "")
    fired = attempt(CONTROL, (one_pass(CONTROL, 2, number=2, **company),))
    assert judged(controls=(fired, again)) == ("INVALID", "control_fired")


def test_data_parallel_ranks_each_need_their_own_probe() -> None:
    assert targets(1) == (None,) and targets(3) == (0, 1, 2)
    facts = ServerFacts(version="0.5.16", tp_size=2, dp_size=2, enable_dp_attention=True)
    states = status(
        *(rank_status(dp, rank={"pp": 0, "dp": dp, "tp": dp}) for dp in range(2)),
    )
    zero, one = attempt("p0", (one_pass("p0"),), dp=0), attempt("p1", (), (one_pass("p1"),), dp=1)
    zero = zero.model_copy(update={"ranks": zero.ranks[:1]})
    one = one.model_copy(update={"ranks": one.ranks[1:]})
    more: dict[str, Any] = {"server": facts, "status_before": states, "status_after": states}
    assert judged(attempts=(zero, one), **more) == ("FIRED", "")
    assert judged(attempts=(zero,), controls=(), **more) == ("NOT_EXERCISED", "deadline")


def test_processes_must_stay_the_same_in_the_ring_too() -> None:
    good = evidence()
    moved = good.attempts[0].ranks[0].model_copy(update={"pid": 8})
    changed = good.model_copy(update={"attempts": (good.attempts[0].model_copy(update={"ranks": (moved,)}),)})
    found = identity(changed)
    assert found is not None and found[0] == "several_servers" and identity(good) is None


def test_every_verdict_has_its_exit_code() -> None:
    assert EXIT_CODES == {
        "FIRED": 0, "PARTIAL": 1, "NOT_FIRED": 1, "NOT_EXERCISED": 3, "DISAGREE": 1, "INVALID": 1, "WRONG": 1,
    }  # fmt: skip


def test_findings_do_not_shadow_conditions() -> None:
    assert not FINDINGS.keys() & BY_ID.keys()
    assert all(one.meaning and one.fix for one in FINDINGS.values())


def test_evidence_survives_a_file() -> None:
    whole = evidence(tp=2)
    again = Evidence.model_validate_json(whole.model_dump_json(by_alias=True))
    assert again == whole and decide(again) == decide(whole)


counts = st.lists(st.integers(0, 4), min_size=1, max_size=4)


@given(observed=counts, skipped=st.booleans())
def test_fired_exactly_when_every_rank_made_every_call(observed: list[int], skipped: bool) -> None:
    """FIRED is never said of a rank that fell short or made too many, whatever the others did."""
    passes = [
        (one_pass("p1", fired, reasons={"prefix_radix": 2 - fired} if skipped and fired < 2 else {}),)
        for fired in observed
    ]
    verdict = decide(evidence(tp=len(observed), attempts=(attempt("p1", *passes),)))
    if all(fired == 2 for fired in observed):
        assert verdict.name == "FIRED"
    elif any(fired > 2 for fired in observed):
        assert verdict.name == "INVALID"
    elif any(observed):
        assert verdict.name == "PARTIAL"
    else:
        assert verdict.name == "NOT_FIRED"


@given(prefixes=st.lists(st.integers(0, 50), min_size=1, max_size=5))
def test_a_probe_beside_any_prefix_never_counts(prefixes: list[int]) -> None:
    one = one_pass(
        "p1",
        rids=("p1", *(f"x{index}" for index in range(len(prefixes)))),
        prefix=(0, *prefixes),
        extend=(TOKENS, *(1 for _ in prefixes)),
    )
    name, _ = judged(attempts=(attempt("p1", (one,)),))
    assert name == ("NOT_EXERCISED" if any(prefixes) else "FIRED")
