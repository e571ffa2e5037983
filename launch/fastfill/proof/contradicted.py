"""Calls that fired although a condition should have stopped them, by what others than the gate say.

The gate is what is being proven, so its word is not enough: SGLang's own settings, the model's shape, the kill switch
and the ring's lengths name the conditions again.
"""

from __future__ import annotations

from collections.abc import Iterator

from fastfill.proof.attempt import target_passes
from fastfill.proof.evidence import Evidence
from fastfill.proof.explain import FP8_CACHES, version
from fastfill.proof.sent import Attempt
from fastfill.proof.tally import Tally, is_ours
from fastfill.proof.wire import Pass, RankStatus
from sglang_fastfill.conditions import ADDRESS_LIMIT, BYTES_PER_HEAD_ROW, GQA_RATIOS, HEAD_DIM

_REACHES_PREFIXES = (0, 5, 19)
_BUILT_IN = (0, 5, 17)
# The same for every layer of a rank; others may hold for some layers of a model whose rest fires.
_OF_THE_RANK = (
    "backend_not_aiter",
    "unsupported_topology",
    "flag_off",
    "arch_not_gfx950",
    "kernel_missing",
    "kernel_broken",
    "ck_disabled",
    "mla",
    "kv_dtype_not_fp8",
    "context_parallel",
    "rival_path",
)


def contradicted(evidence: Evidence, ranks: tuple[Tally, ...]) -> tuple[str, str] | None:
    """The finding and its detail for the first condition that was ignored; None where none was."""
    status = evidence.status_after
    if status is None:
        return None
    states = {one.rank: one for one in status.ranks}
    for one in ranks:
        if not one.observed or one.rank not in states:
            continue
        state = states[one.rank]
        for id, seen in (*_deployment(evidence, state), *_passes(evidence, state)):
            return "gate_ignores_condition", f"{one.rank} fired {one.observed} time(s) although {id}: {seen}"
    return None


def _deployment(evidence: Evidence, state: RankStatus) -> Iterator[tuple[str, str]]:
    server, model = evidence.server, state.model
    if state.backend and "aiter" not in state.backend.lower():
        yield "backend_not_aiter", state.backend
    if not state.flag and (state.patched or version(state.sglang) < _BUILT_IN):
        yield "flag_off", "the flag is not set"
    before, after = evidence.status_before, evidence.status_after
    if before and after and before.path.path == after.path.path == "off":
        yield "operator_off", f"turned off by {after.path.who}"
    # With `auto` the checkpoint decides, and on HIP SGLang stores either fp8 format as e4m3.
    if server.kv_cache_dtype not in ("", "auto", *FP8_CACHES):
        yield "kv_dtype_not_fp8", f"--kv-cache-dtype {server.kv_cache_dtype}"
    if model.head_dim and model.head_dim != HEAD_DIM:
        yield "head_dim_not_256", f"the model's is {model.head_dim}"
    q_heads, kv_heads = _heads(evidence, state)
    if q_heads and kv_heads and (q_heads % kv_heads or q_heads // kv_heads not in GQA_RATIOS):
        yield "gqa_ratio", f"{q_heads} q heads on {kv_heads} kv heads"
    for id in _OF_THE_RANK:
        if id in state.deployment and state.deployment[id].status == "fail":
            yield id, state.deployment[id].value


def _heads(evidence: Evidence, state: RankStatus) -> tuple[int, int]:
    """q and kv heads of one rank; fewer kv heads than ranks are held by several of them."""
    parts = evidence.server.tp_size
    if evidence.server.enable_dp_attention:
        parts = max(1, parts // max(1, evidence.server.dp_size))
    model = state.model
    kv_heads = model.num_key_value_heads
    return model.num_attention_heads // parts, max(1, kv_heads // parts) if kv_heads else 0


def _passes(evidence: Evidence, state: RankStatus) -> Iterator[tuple[str, str]]:
    q_heads, _ = _heads(evidence, state)
    for one in _fired(evidence.sent(), state):
        tokens = sum(one.extend)
        if one.mode and one.mode not in ("EXTEND", "MIXED"):
            yield "not_extend", one.mode
        if version(state.sglang) < _REACHES_PREFIXES:
            if one.mode == "MIXED":
                yield "prefix_mixed", f"pass {one.number}"
            if any(one.prefix):
                yield "prefix_radix", f"prefix lengths {list(one.prefix)} in pass {one.number}"
        if q_heads * tokens * BYTES_PER_HEAD_ROW >= ADDRESS_LIMIT:
            yield "batch_too_large", f"{tokens} tokens of {q_heads} heads in pass {one.number}"


def _fired(sent: tuple[Attempt, ...], state: RankStatus) -> Iterator[Pass]:
    for attempt in sent:
        for ranked in attempt.ranks:
            if ranked.rank == state.rank:
                for one in target_passes(attempt, ranked.passes):
                    if any(is_ours(call) and call.count for call in one.calls):
                        yield one
