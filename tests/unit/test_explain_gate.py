"""What ``explain`` foretells of our stack is what the gate inside the server decides, condition by condition."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from fastfill.explaining import batch, deployment
from fastfill.explaining.aiter import Aiter
from fastfill.explaining.facts import Facts, attention_ranks, rank_heads
from fastfill.explaining.launch import Launch
from fastfill.explaining.releases import stack
from fastfill.explaining.scales import Scales
from fastfill.explaining.scheduler import schedule, token_limit
from fastfill.model_config import Layers, ModelShape
from sglang_fastfill import gate
from sglang_fastfill.conditions import BY_ID, FLAG


@st.composite
def deployments(draw: st.DrawFn) -> Facts:
    """A deployment of our stack of which any number of things may be wrong."""

    def pick(*values: object) -> object:
        """Mostly the first, which is right."""
        return draw(st.sampled_from((values[0], values[0], values[0], *values)))

    kind = pick("full", "sliding", "shared")
    q_heads, kv_heads = pick((16, 1), (32, 2), (24, 4), (64, 2), (8, 8), (256, 16))
    launch = Launch(
        tp=pick(1, 2, 4),
        backend=pick("", "aiter", "triton"),
        kv_dtype=pick("fp8_e4m3", "auto", "bf16"),
        nodes=pick(1, 2),
        pp=pick(1, 2),
        cp=pick(1, 2),
        disaggregation=pick("", "prefill"),
    )
    head_dims = pick((256, 256), (128, 128), (256, 128), (192, 128))
    model = ModelShape(
        architecture="X",
        known=True,
        layers=(Layers(kind, 4, *head_dims, kv_heads),),
        q_heads=q_heads,
        window=1024 if kind == "sliding" else None,
        sinks=pick(False, True),
        softcap=pick(0.0, 50.0),
        attention=pick("decoder", "bidirectional", "encoder"),
        mla=pick(False, True),
        context=32768,
        quantised=False,
        fp8_kv=False,
        missing={},
    )
    archs, ck = pick("", "gfx950", "gfx942;gfx950", "gfx950;gfx942"), pick("", "1", "0")
    env = (
        {FLAG: pick("1", "true", "0", "")} | ({"GPU_ARCHS": archs} if archs else {}) | ({"ENABLE_CK": ck} if ck else {})
    )
    kernel = Aiter(pick("present", "missing", "broken"), "", False, "")
    plan = schedule(launch, 288 << 10, model.context)
    return Facts(stack("sglang-0.5.16"), model, model.layers[0], launch, plan, kernel, Scales("one", ""), env)


def seen_inside(facts: Facts) -> gate.LayerFacts:
    """The same deployment as the gate would see it in one of its layers."""
    env = facts.env or {}
    heads = rank_heads(facts.model.q_heads or 0, facts.layers.kv_heads or 0, attention_ranks(facts.launch))
    assert heads is not None
    return gate.LayerFacts(
        backend="AiterAttnBackend" if facts.launch.backend in ("", "aiter") else "TritonAttnBackend",
        nodes=facts.launch.nodes,
        pipeline=facts.launch.pp,
        disaggregation=facts.launch.disaggregation or "null",
        flag=env.get(FLAG) in ("1", "true"),
        believed_arch=env.get("GPU_ARCHS", "gfx950").split(";")[-1],
        device_arch="gfx950",
        kernel=facts.aiter.kernel,
        ck_enabled=env.get("ENABLE_CK", "1") != "0",
        qk_head_dim=facts.layers.qk_head_dim or 0,
        v_head_dim=facts.layers.v_head_dim or 0,
        q_heads=heads[0],
        kv_heads=heads[1],
        sliding_window=1023 if facts.layers.kind == "sliding" else -1,
        sinks=bool(facts.model.sinks),
        logit_cap=facts.model.softcap,
        bidirectional=facts.model.attention != "decoder",
        mla=facts.model.mla,
        kv_dtype="float8_e4m3fn" if facts.launch.kv_dtype == "fp8_e4m3" else "bfloat16",
        has_kv=facts.layers.kind != "shared",
        context_parallel=facts.launch.cp,
        rival=False,
    )


@settings(max_examples=400, deadline=None)
@given(deployments())
def test_explain_and_the_gate_agree(facts: Facts) -> None:
    foretold = [condition(facts) for condition in deployment.CONDITIONS]
    assert {result.status for result in foretold} <= {"pass", "fail"}
    verdict = gate.judge_layer(seen_inside(facts))
    assert [result.id for result in foretold if result.status == "fail"] == list(verdict.stops)
    assert {result.effect for result in foretold if result.status == "fail"} <= {"stops"}
    assert verdict.token_limit == token_limit(verdict.facts.q_heads)


def test_both_know_the_same_conditions() -> None:
    decided = [condition.__name__ for condition in (*deployment.CONDITIONS, *batch.CONDITIONS)]
    assert decided == list(BY_ID)
    assert set(gate.DEPLOYMENT) | set(gate.DYNAMIC) == {condition.__name__ for condition in deployment.CONDITIONS}
    assert set(gate.BATCH) | gate.SIZE_GUARDED == {condition.__name__ for condition in batch.CONDITIONS}
