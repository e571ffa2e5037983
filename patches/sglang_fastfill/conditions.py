"""The one vocabulary: why the fast path does not fire, in the order in which the reasons are tested.

Pure data, imported by the gate inside the server and by the operator's CLI alike. The first condition that holds is the
reason that is reported; a condition that *passes* does not stop the path.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

FLAG = "SGLANG_AITER_FMHA_FP8_ASM"
NEAR_MISS_FLAGS = ("SGLANG_AITER_FMHA_FP8_HD256",)
RIVAL_FLAG = "SGLANG_AITER_FP8_CONTIG_PREFILL"
FALLBACK_RID_PREFIX = "fastfill-fallback-"

HEAD_DIM = 256
GQA_RATIOS = (1, 2, 4, 8, 16)
ADDRESS_LIMIT = 1 << 32
"""The kernel's row offsets are 32-bit: packed tokens x q heads x 512 bytes of bf16 output must stay below this."""
BYTES_PER_HEAD_ROW = 512

Scope = Literal["deployment", "batch"]


class Condition(NamedTuple):
    """One reason why a prefill does not take the fast path.

    Attributes:
        id: The name used by the gate, the metrics' ``reason`` label, ``prove``, ``explain`` and the README.
        scope: ``deployment`` is fixed once the server is up; ``batch`` changes from one forward pass to the next.
        meaning: When it stops the path, in one line.
        fix: What to do about it, in one line.
    """

    id: str
    scope: Scope
    meaning: str
    fix: str


def _deployment(id: str, meaning: str, fix: str) -> Condition:
    return Condition(id, "deployment", meaning, fix)


def _batch(id: str, meaning: str, fix: str) -> Condition:
    return Condition(id, "batch", meaning, fix)


CONDITIONS: tuple[Condition, ...] = (
    _deployment(
        "backend_not_aiter",
        "the prefill attention backend is not aiter",
        "set SGLANG_USE_AITER=1 and --attention-backend aiter, with no other --prefill-attention-backend",
    ),
    _deployment(
        "unsupported_topology",
        "several nodes, pipeline parallelism or prefill/decode disaggregation",
        "serve on one node with --pp-size 1 and without --disaggregation-mode",
    ),
    _deployment(
        "flag_off",
        f"{FLAG}=1 is not set",
        f"start with a profile that sets {FLAG}=1, such as long-context",
    ),
    _deployment(
        "operator_off",
        "an operator has thrown the kill switch",
        "turn the path on again: fastfill path on --url URL",
    ),
    _deployment(
        "arch_not_gfx950",
        "a GPU is not gfx950, or the last entry of GPU_ARCHS makes aiter believe so",
        "run on MI350X or MI355X, with GPU_ARCHS unset or gfx950",
    ),
    _deployment(
        "kernel_missing",
        "the installed aiter has no fp8 head-dim-256 kernel files, or no table row for them",
        "install aiter main at or after 5c0fece96d (the stack file pins one)",
    ),
    _deployment(
        "kernel_broken",
        "the installed kernel is the revision that leaves rows unwritten (aiter e1369bfa67 up to 2e7856a0f8)",
        "install aiter main at or after 5c0fece96d (the stack file pins one)",
    ),
    _deployment(
        "ck_disabled",
        "ENABLE_CK=0 sends the function to Triton instead of the assembly kernel",
        "unset ENABLE_CK",
    ),
    _deployment(
        "head_dim_not_256",
        "the q/k or v head dim is not 256",
        "none: the kernel exists for head dim 256 only; use a model that has it",
    ),
    _deployment(
        "gqa_ratio",
        "q heads / kv heads on a rank is not 1, 2, 4, 8 or 16",
        "none for most models (tensor parallelism keeps the ratio until kv heads are replicated); see explain",
    ),
    _deployment(
        "sliding_window", "the layer has a sliding window", "none: full-attention layers of the model still fire"
    ),
    _deployment("attention_sinks", "the layer has attention sinks", "none: the kernel would silently ignore the sinks"),
    _deployment("logit_softcap", "the layer caps its logits", "none: the kernel has no soft cap"),
    _deployment(
        "cross_attention",
        "the layer attends across sequences or both ways",
        "none: the path is for causal self-attention",
    ),
    _deployment("mla", "the model uses multi-head latent attention", "none: MLA has its own kernels"),
    _deployment(
        "kv_dtype_not_fp8",
        "the KV cache is not fp8 e4m3",
        "start with --kv-cache-dtype fp8_e4m3",
    ),
    _deployment("no_kv_input", "the layer is given no k and v (it shares another layer's KV)", "none for such layers"),
    _deployment(
        "context_parallel",
        "prefill context parallelism splits the sequence",
        "start without prefill context parallelism",
    ),
    _deployment(
        "graph_capture",
        "the pass is captured in a prefill graph",
        "start without a full prefill graph (HIP's default)",
    ),
    _deployment(
        "rival_path",
        f"the installed backend reads {RIVAL_FLAG} and it is set",
        f"unset {RIVAL_FLAG}",
    ),
    _batch("not_extend", "the pass is not a plain or mixed extend", "none: decode and verify have their own kernels"),
    _batch("no_prefix_info", "the pass carries no prefix lengths on the host", "none"),
    _batch(
        "prefix_mixed",
        "a decode request is mixed into the batch",
        "start without --enable-mixed-chunk",
    ),
    _batch(
        "prefix_chunk",
        "a sequence is a later chunk of a split prompt",
        "start with --chunked-prefill-size -1 and bound the batch with --max-prefill-tokens",
    ),
    _batch(
        "prefix_radix",
        "a sequence has a prefix from the radix cache",
        "none needed: cached tokens cost no prefill; --disable-radix-cache if prompts rarely repeat",
    ),
    _batch(
        "batch_too_large",
        "packed tokens x q heads per rank x 512 bytes reach 2^32 (32-bit offsets in the kernel)",
        "lower --max-prefill-tokens (or --context-length), or raise tensor parallelism",
    ),
    _batch(
        "forced_fallback",
        f"a request's rid starts with {FALLBACK_RID_PREFIX} and the profile allows it",
        "none: it was asked for, as a negative control",
    ),
)

BY_ID: dict[str, Condition] = {condition.id: condition for condition in CONDITIONS}
ORDER: dict[str, int] = {condition.id: index for index, condition in enumerate(CONDITIONS)}


def first(ids: set[str] | frozenset[str] | tuple[str, ...] | list[str]) -> str | None:
    """The reason to report among the conditions that hold: the earliest in the tables' order, None for none."""
    return min(ids, key=ORDER.__getitem__, default=None)
