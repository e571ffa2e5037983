"""Decides whether a prefill may take the fast path. Pure: facts in, decision out, no torch and no I/O.

Deployment conditions are decided once per layer, batch conditions once per forward pass, and a layer call joins the two
verdicts with one comparison of integers. ``DEPLOYMENT``, ``DYNAMIC`` and ``BATCH`` map each condition id to the
predicate that holds when the condition stops the path; their order does not matter, the tables' order in
``conditions`` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from sglang_fastfill.conditions import (
    ADDRESS_LIMIT,
    BYTES_PER_HEAD_ROW,
    FALLBACK_RID_PREFIX,
    GQA_RATIOS,
    HEAD_DIM,
    ORDER,
    first,
)

KernelState = Literal["present", "missing", "broken"]


@dataclass(frozen=True, slots=True)
class LayerFacts:
    """What decides the deployment conditions of one attention layer on one rank.

    Attributes:
        backend: Class name of the prefill attention backend.
        nodes: Number of nodes (``--nnodes``).
        pipeline: Pipeline-parallel size.
        disaggregation: ``--disaggregation-mode``; ``null`` for none.
        flag: SGLANG_AITER_FMHA_FP8_ASM is on.
        believed_arch: The GPU architecture by which aiter dispatches (GPU_ARCHS included).
        device_arch: What the device itself says; empty when there is no GPU to ask.
        kernel: State of the installed hd256 fp8 kernel.
        ck_enabled: aiter's ENABLE_CK.
        qk_head_dim: Elements per q and k head.
        v_head_dim: Elements per v head.
        q_heads: q heads on this rank.
        kv_heads: kv heads on this rank.
        sliding_window: Window in tokens, negative for none.
        sinks: The layer is called with attention sinks.
        logit_cap: Soft cap of the logits, 0.0 for none.
        bidirectional: The layer is cross attention or encoder-only.
        mla: The model uses multi-head latent attention.
        kv_dtype: The KV cache's dtype, without the ``torch.`` prefix.
        has_kv: The layer is given k and v.
        context_parallel: Attention context-parallel size in prefill, 1 for none.
        rival: The installed backend reads the rival flag and it is set.
    """

    backend: str
    nodes: int
    pipeline: int
    disaggregation: str
    flag: bool
    believed_arch: str
    device_arch: str
    kernel: KernelState
    ck_enabled: bool
    qk_head_dim: int
    v_head_dim: int
    q_heads: int
    kv_heads: int
    sliding_window: int
    sinks: bool
    logit_cap: float
    bidirectional: bool
    mla: bool
    kv_dtype: str
    has_kv: bool
    context_parallel: int
    rival: bool


def gqa_supported(q_heads: int, kv_heads: int) -> bool:
    """Whether the kernel answers right for this ratio of heads on a rank.

    aiter's own check admits every power of two; the kernel's shift stops at 16 (disassembled, aiter c16d44b93a).
    """
    return kv_heads > 0 and q_heads % kv_heads == 0 and q_heads // kv_heads in GQA_RATIOS


DEPLOYMENT: Final[dict[str, Callable[[LayerFacts], bool]]] = {
    "backend_not_aiter": lambda f: f.backend != "AiterAttnBackend",
    "unsupported_topology": lambda f: f.nodes > 1 or f.pipeline > 1 or f.disaggregation not in ("", "null"),
    "flag_off": lambda f: not f.flag,
    "arch_not_gfx950": lambda f: f.believed_arch != "gfx950" or f.device_arch not in ("", "gfx950"),
    "kernel_missing": lambda f: f.kernel == "missing",
    "kernel_broken": lambda f: f.kernel == "broken",
    "ck_disabled": lambda f: not f.ck_enabled,
    "head_dim_not_256": lambda f: f.qk_head_dim != HEAD_DIM or f.v_head_dim != HEAD_DIM,
    "gqa_ratio": lambda f: not gqa_supported(f.q_heads, f.kv_heads),
    "sliding_window": lambda f: f.sliding_window > -1,
    "attention_sinks": lambda f: f.sinks,
    "logit_softcap": lambda f: f.logit_cap != 0.0,
    "cross_attention": lambda f: f.bidirectional,
    "mla": lambda f: f.mla,
    "kv_dtype_not_fp8": lambda f: f.kv_dtype != "float8_e4m3fn",
    "no_kv_input": lambda f: not f.has_kv,
    "context_parallel": lambda f: f.context_parallel > 1,
    "rival_path": lambda f: f.rival,
}
"""Holds for a layer until the server is restarted."""

DEPLOYMENT_VALUES: Final[dict[str, Callable[[LayerFacts], str]]] = {
    "backend_not_aiter": lambda f: f.backend,
    "unsupported_topology": lambda f: f"nnodes={f.nodes} pp={f.pipeline} disaggregation={f.disaggregation or 'null'}",
    "flag_off": lambda f: "1" if f.flag else "0",
    "arch_not_gfx950": lambda f: f"aiter: {f.believed_arch}, device: {f.device_arch or 'none'}",
    "kernel_missing": lambda f: f.kernel,
    "kernel_broken": lambda f: f.kernel,
    "ck_disabled": lambda f: f"ENABLE_CK={int(f.ck_enabled)}",
    "head_dim_not_256": lambda f: f"qk={f.qk_head_dim} v={f.v_head_dim}",
    "gqa_ratio": lambda f: f"{f.q_heads}/{f.kv_heads}",
    "sliding_window": lambda f: str(f.sliding_window),
    "attention_sinks": lambda f: str(f.sinks).lower(),
    "logit_softcap": lambda f: str(f.logit_cap),
    "cross_attention": lambda f: str(f.bidirectional).lower(),
    "mla": lambda f: str(f.mla).lower(),
    "kv_dtype_not_fp8": lambda f: f.kv_dtype,
    "no_kv_input": lambda f: "given" if f.has_kv else "none",
    "context_parallel": lambda f: str(f.context_parallel),
    "rival_path": lambda f: "active" if f.rival else "inactive",
}
"""The value that decided each condition, for people."""


@dataclass(frozen=True, slots=True)
class PassFacts:
    """What decides the conditions of one forward pass.

    Attributes:
        operator_off: The kill switch is thrown.
        capturing: The pass is being captured in a graph.
        mode: Name of SGLang's ForwardMode.
        prefix_lens: Cached tokens per sequence, on the host; None when SGLang has none.
        extend_lens: New tokens per sequence.
        rids: Request ids, one per sequence; may be empty.
        ends: Where each recently prefilled request's last chunk ended, in tokens, by rid.
        forced_fallback_allowed: The profile allows the negative control.
    """

    operator_off: bool
    capturing: bool
    mode: str
    prefix_lens: Sequence[int] | None
    extend_lens: Sequence[int]
    rids: Sequence[str]
    ends: Mapping[str, int]
    forced_fallback_allowed: bool


def _continues(facts: PassFacts) -> list[bool]:
    """For each sequence with a prefix: whether it is the next chunk of a prompt that was split."""
    if facts.prefix_lens is None:
        return []
    rids = facts.rids if len(facts.rids) == len(facts.prefix_lens) else [""] * len(facts.prefix_lens)
    return [facts.ends.get(rid) == prefix for rid, prefix in zip(rids, facts.prefix_lens, strict=True) if prefix > 0]


def _mixed(facts: PassFacts) -> bool:
    return facts.mode == "MIXED"


DYNAMIC: Final[dict[str, Callable[[PassFacts], bool]]] = {
    "operator_off": lambda f: f.operator_off,
    "graph_capture": lambda f: f.capturing,
}
"""Deployment conditions that are looked at once per pass."""

BATCH: Final[dict[str, Callable[[PassFacts], bool]]] = {
    "not_extend": lambda f: f.mode not in ("EXTEND", "MIXED"),
    # One for each sequence, or we do not know which of them has a prefix.
    "no_prefix_info": lambda f: f.prefix_lens is None or len(f.prefix_lens) != len(f.extend_lens),
    "prefix_mixed": _mixed,
    "prefix_chunk": lambda f: not _mixed(f) and any(_continues(f)),
    "prefix_radix": lambda f: not _mixed(f) and not all(_continues(f)),
    "forced_fallback": lambda f: (
        f.forced_fallback_allowed and any(rid.startswith(FALLBACK_RID_PREFIX) for rid in f.rids)
    ),
}
"""Holds for one forward pass; ``batch_too_large`` depends on the layer's heads too and is an integer of the layer."""

SIZE_GUARDED: Final[set[str]] = {"batch_too_large"}
_NO_LIMIT = 1 << 62


@dataclass(slots=True)
class LayerVerdict:
    """Deployment conditions of one layer, decided once.

    Attributes:
        stops: Ids of the conditions that hold, in the tables' order.
        reason: The first of them, None when the layer may fire.
        token_limit: Packed tokens in one batch from which the kernel's offsets overflow.
        context_limit: Tokens of one sequence, prefix included, from which its k and v offsets overflow.
        flag: The flag is on (a layer that may not fire still saturates when it is).
        facts: What was decided on.
    """

    stops: tuple[str, ...]
    reason: str | None
    token_limit: int
    context_limit: int
    flag: bool
    facts: LayerFacts


@dataclass(slots=True)
class PassVerdict:
    """Conditions of one forward pass, decided once.

    Attributes:
        stops: Ids of the conditions that hold, in the tables' order.
        reason: The first of them, None when the pass may fire.
        tokens: Packed new tokens of the batch.
        longest: Tokens of its longest sequence, prefix included.
    """

    stops: tuple[str, ...]
    reason: str | None
    tokens: int
    longest: int


def _ordered(ids: list[str]) -> tuple[str, ...]:
    return tuple(sorted(ids, key=ORDER.__getitem__))


def _limit(row_bytes: int) -> int:
    """The number of rows that no longer fits into a 32-bit offset."""
    return -(-ADDRESS_LIMIT // max(row_bytes, 1))


def judge_layer(facts: LayerFacts) -> LayerVerdict:
    """Decide every deployment condition of a layer but those of ``DYNAMIC``."""
    stops = _ordered([id for id, holds in DEPLOYMENT.items() if holds(facts)])
    guarded = "batch_too_large" in SIZE_GUARDED
    return LayerVerdict(
        stops=stops,
        reason=stops[0] if stops else None,
        token_limit=_limit(facts.q_heads * BYTES_PER_HEAD_ROW) if guarded else _NO_LIMIT,
        context_limit=_limit(facts.kv_heads * HEAD_DIM) if guarded else _NO_LIMIT,
        flag="flag_off" not in stops,
        facts=facts,
    )


def judge_pass(facts: PassFacts) -> PassVerdict:
    """Decide every condition of a forward pass but the size of the batch."""
    held = [id for id, holds in DYNAMIC.items() if holds(facts)]
    held += [id for id, holds in BATCH.items() if holds(facts)]
    stops = _ordered(held)
    longest = max((p + e for p, e in zip(facts.prefix_lens or (), facts.extend_lens, strict=False)), default=0)
    return PassVerdict(stops, stops[0] if stops else None, tokens=sum(facts.extend_lens), longest=longest)


PREFIX: Final[frozenset[str]] = frozenset({"prefix_mixed", "prefix_chunk", "prefix_radix"})
"""What no longer stops a pass whose prefixes can be brought to the kernel."""


def with_prefix_reached(verdict: PassVerdict) -> PassVerdict:
    """The verdict of the same pass where this SGLang can bring the cached tokens to the kernel as well."""
    stops = tuple(id for id in verdict.stops if id not in PREFIX)
    return PassVerdict(stops, stops[0] if stops else None, verdict.tokens, verdict.longest)


def all_reasons(layer: LayerVerdict, forward_pass: PassVerdict) -> tuple[str, ...]:
    """Every condition that stops this layer in this pass, in the tables' order; empty when the path fires."""
    held = [*layer.stops, *forward_pass.stops]
    if forward_pass.tokens >= layer.token_limit or forward_pass.longest >= layer.context_limit:
        held.append("batch_too_large")
    return _ordered(held)


def reason(layer: LayerVerdict, forward_pass: PassVerdict) -> str | None:
    """The first condition that stops this layer in this pass, None when the path fires."""
    if (
        layer.reason is None
        and forward_pass.reason is None
        and forward_pass.tokens < layer.token_limit
        and forward_pass.longest < layer.context_limit
    ):
        return None
    return first(all_reasons(layer, forward_pass))
