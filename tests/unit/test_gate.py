"""The gate's decisions, as pure functions: each condition, its order, and that removing any of them is noticed."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_fastfill import gate
from sglang_fastfill.conditions import BY_ID, CONDITIONS, ORDER, first

GOOD_LAYER = gate.LayerFacts(
    backend="AiterAttnBackend",
    nodes=1,
    pipeline=1,
    disaggregation="null",
    flag=True,
    believed_arch="gfx950",
    device_arch="gfx950",
    kernel="present",
    ck_enabled=True,
    qk_head_dim=256,
    v_head_dim=256,
    q_heads=8,
    kv_heads=1,
    sliding_window=-1,
    sinks=False,
    logit_cap=0.0,
    bidirectional=False,
    mla=False,
    kv_dtype="float8_e4m3fn",
    has_kv=True,
    context_parallel=1,
    rival=False,
)
GOOD_PASS = gate.PassFacts(
    operator_off=False,
    capturing=False,
    mode="EXTEND",
    prefix_lens=[0, 0],
    extend_lens=[300, 20],
    rids=["a", "b"],
    ends={},
    forced_fallback_allowed=True,
)

LAYER_CASES: list[tuple[str, dict[str, Any]]] = [
    ("backend_not_aiter", {"backend": "TritonAttnBackend"}),
    ("unsupported_topology", {"nodes": 2}),
    ("unsupported_topology", {"pipeline": 2}),
    ("unsupported_topology", {"disaggregation": "prefill"}),
    ("flag_off", {"flag": False}),
    ("arch_not_gfx950", {"believed_arch": "gfx942"}),
    ("arch_not_gfx950", {"device_arch": "gfx942"}),
    ("kernel_missing", {"kernel": "missing"}),
    ("kernel_broken", {"kernel": "broken"}),
    ("ck_disabled", {"ck_enabled": False}),
    ("head_dim_not_256", {"qk_head_dim": 128}),
    ("head_dim_not_256", {"v_head_dim": 128}),
    ("gqa_ratio", {"q_heads": 6}),
    ("gqa_ratio", {"q_heads": 32}),
    ("gqa_ratio", {"q_heads": 3, "kv_heads": 2}),
    ("sliding_window", {"sliding_window": 0}),
    ("sliding_window", {"sliding_window": 4096}),
    ("attention_sinks", {"sinks": True}),
    ("logit_softcap", {"logit_cap": 50.0}),
    ("cross_attention", {"bidirectional": True}),
    ("mla", {"mla": True}),
    ("kv_dtype_not_fp8", {"kv_dtype": "bfloat16"}),
    ("kv_dtype_not_fp8", {"kv_dtype": "float8_e4m3fnuz"}),
    ("no_kv_input", {"has_kv": False}),
    ("context_parallel", {"context_parallel": 2}),
    ("rival_path", {"rival": True}),
]
PASS_CASES: list[tuple[str, dict[str, Any]]] = [
    ("operator_off", {"operator_off": True}),
    ("graph_capture", {"capturing": True}),
    ("not_extend", {"mode": "TARGET_VERIFY"}),
    ("not_extend", {"mode": "SPLIT_PREFILL"}),
    ("not_extend", {"mode": "DLLM_EXTEND"}),
    ("not_extend", {"mode": "DRAFT_EXTEND_V2"}),
    ("no_prefix_info", {"prefix_lens": None}),
    ("no_prefix_info", {"prefix_lens": []}),
    ("no_prefix_info", {"prefix_lens": [0]}),
    ("prefix_mixed", {"mode": "MIXED", "prefix_lens": [0, 319], "extend_lens": [10, 1]}),
    ("prefix_chunk", {"prefix_lens": [128, 0], "ends": {"a": 128}}),
    ("prefix_radix", {"prefix_lens": [0, 16], "ends": {"a": 16}}),
    ("prefix_radix", {"prefix_lens": [0, 16], "ends": {"b": 15}}),
    ("prefix_radix", {"prefix_lens": [0, 16], "rids": []}),
    ("forced_fallback", {"rids": ["a", "fastfill-fallback-1"]}),
]


def reason_of(layer: dict[str, Any], forward_pass: dict[str, Any], *, reached: bool = False) -> str | None:
    verdict = gate.judge_pass(dataclasses.replace(GOOD_PASS, **forward_pass))
    return gate.reason(
        gate.judge_layer(dataclasses.replace(GOOD_LAYER, **layer)),
        gate.with_prefix_reached(verdict) if reached else verdict,
    )


def test_fires_when_nothing_stops_it() -> None:
    assert reason_of({}, {}) is None


@pytest.mark.parametrize(("id", "change"), LAYER_CASES)
def test_layer_condition(id: str, change: dict[str, Any]) -> None:
    assert reason_of(change, {}) == id


@pytest.mark.parametrize(("id", "change"), PASS_CASES)
def test_pass_condition(id: str, change: dict[str, Any]) -> None:
    assert reason_of({}, change) == id


@pytest.mark.parametrize("ratio", [1, 2, 4, 8, 16])
def test_supported_ratios_fire(ratio: int) -> None:
    assert reason_of({"q_heads": ratio * 2, "kv_heads": 2}, {}) is None


def test_forced_fallback_needs_the_profile() -> None:
    assert reason_of({}, {"rids": ["fastfill-fallback-1", "b"], "forced_fallback_allowed": False}) is None


def test_a_chunk_and_a_radix_hit_in_one_batch_name_the_chunk_and_list_both() -> None:
    facts = dataclasses.replace(GOOD_PASS, prefix_lens=[128, 64], ends={"a": 128})
    verdict = gate.judge_pass(facts)
    assert verdict.stops == ("prefix_chunk", "prefix_radix")


@pytest.mark.parametrize(("heads", "limit"), [(32, 262_144), (16, 524_288), (8, 1_048_576), (24, 349_526)])
def test_batch_size_limit(heads: int, limit: int) -> None:
    """2^32 / (heads x 512), rounded up: facts of the disassembled kernel."""
    layer = {"q_heads": heads, "kv_heads": heads}
    assert reason_of(layer, {"extend_lens": [limit - 2, 1]}) is None
    assert reason_of(layer, {"extend_lens": [limit - 1, 1]}) == "batch_too_large"


@pytest.mark.parametrize(("kv_heads", "limit"), [(1, 16_777_216), (2, 8_388_608), (3, 5_592_406)])
def test_context_limit(kv_heads: int, limit: int) -> None:
    """2^32 / (kv heads x 256) tokens of one sequence, prefix included: facts of the disassembled kernel."""
    layer = {"q_heads": kv_heads, "kv_heads": kv_heads}
    near = {"prefix_lens": [limit - 101, 0], "extend_lens": [100, 20]}
    assert reason_of(layer, near, reached=True) is None
    assert reason_of(layer, {**near, "extend_lens": [101, 20]}, reached=True) == "batch_too_large"
    assert reason_of(layer, {**near, "prefix_lens": [0, limit - 20]}, reached=True) == "batch_too_large"


@pytest.mark.parametrize(
    "case",
    [
        {"mode": "MIXED", "prefix_lens": [0, 319], "extend_lens": [10, 1]},
        {"prefix_lens": [128, 0], "ends": {"a": 128}},
        {"prefix_lens": [0, 16]},
    ],
)
def test_a_prefix_stops_nothing_where_it_can_be_brought_to_the_kernel(case: dict[str, Any]) -> None:
    assert reason_of({}, case) in ("prefix_mixed", "prefix_chunk", "prefix_radix")
    assert reason_of({}, case, reached=True) is None
    forced = {**case, "rids": ["fastfill-fallback-1", "b"]}
    assert reason_of({}, forced, reached=True) == "forced_fallback"
    assert reason_of({}, {**case, "operator_off": True}, reached=True) == "operator_off"
    assert reason_of({}, {**case, "prefix_lens": [5]}, reached=True) == "no_prefix_info"


def test_the_tables_order_decides_across_layer_and_pass() -> None:
    assert reason_of({"qk_head_dim": 128}, {"operator_off": True}) == "operator_off"
    assert reason_of({"flag": False}, {"operator_off": True}) == "flag_off"
    assert reason_of({"rival": True}, {"capturing": True}) == "graph_capture"
    assert reason_of({}, {"extend_lens": [1 << 30, 1], "rids": ["fastfill-fallback-x", "b"]}) == "batch_too_large"


def test_all_reasons_are_listed_in_order() -> None:
    layer = gate.judge_layer(dataclasses.replace(GOOD_LAYER, rival=True, q_heads=6))
    forward_pass = gate.judge_pass(dataclasses.replace(GOOD_PASS, operator_off=True, prefix_lens=[5, 0]))
    assert gate.all_reasons(layer, forward_pass) == ("operator_off", "gqa_ratio", "rival_path", "prefix_radix")


def test_every_condition_is_decided_somewhere() -> None:
    decided = {*gate.DEPLOYMENT, *gate.DYNAMIC, *gate.BATCH, *gate.SIZE_GUARDED}
    assert decided == {condition.id for condition in CONDITIONS}
    assert set(gate.DEPLOYMENT_VALUES) == set(gate.DEPLOYMENT)


def test_every_condition_has_a_case_that_fails_without_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The mutation run: each condition taken out in turn, and the cases that then fail."""
    for condition in CONDITIONS:
        with monkeypatch.context() as patch:
            for table in (gate.DEPLOYMENT, gate.DYNAMIC, gate.BATCH):
                if condition.id in table:
                    patch.delitem(table, condition.id)
            if condition.id in gate.SIZE_GUARDED:
                patch.setattr(gate, "SIZE_GUARDED", set())
            failing = [f"test_layer_condition[{change}]" for id, change in LAYER_CASES if reason_of(change, {}) != id]
            failing += [f"test_pass_condition[{change}]" for id, change in PASS_CASES if reason_of({}, change) != id]
            if reason_of({}, {"extend_lens": [1 << 30, 1]}) != "batch_too_large":
                failing.append("test_batch_size_limit")
        with capsys.disabled():
            print(f"\n  without {condition.id}: {'; '.join(failing) or 'NOTHING FAILS'}", end="")
        assert failing, condition.id
    with capsys.disabled():
        print()


@given(st.sets(st.sampled_from([condition.id for condition in CONDITIONS])))
def test_first_is_the_earliest(ids: set[str]) -> None:
    got = first(ids)
    assert (got is None) == (not ids)
    if got is not None:
        assert all(ORDER[got] <= ORDER[id] for id in ids)


def test_vocabulary_is_complete() -> None:
    assert len(BY_ID) == len(CONDITIONS) == 27
    scopes = [condition.scope for condition in CONDITIONS]
    assert scopes == sorted(scopes, reverse=True), "deployment conditions come before batch conditions"
    assert all(condition.meaning and condition.fix for condition in CONDITIONS)
