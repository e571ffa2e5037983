"""The fast path itself: what the patched ``AiterAttnBackend.forward_extend`` calls.

``begin`` is called before the KV write, because the write may divide k and v in place (the 5-D pool does) and because a
cast that overflows would put NaN into the cache. ``Prefill.attend`` is called after it.
"""

from __future__ import annotations

from typing import Any

import torch

from sglang_fastfill import context, deployment, gate, passes
from sglang_fastfill.conditions import CONDITIONS
from sglang_fastfill.ledger import LEDGER
from sglang_fastfill.memory import Memory
from sglang_fastfill.quantize import FP8, descale, quantize_qkv, saturate

try:
    # Apart from SGLang's own import block: an aiter without the function is `kernel_missing`, not a NameError.
    import aiter
except ImportError:
    aiter = None


DECIDES = True
"""SGLang's own head-dim-256 branches (0.5.17 and later) ask this and give way: they have no off switch, no guards."""


class FastPathError(RuntimeError):
    """The kernel raised although every condition had passed."""


class Prefill:
    """One layer's prefill, between its two calls from the backend.

    Attributes:
        write: k, v and their scales as the KV write is to get them.
        fires: Whether ``attend`` is to be called instead of the backend's own attention.
    """

    __slots__ = ("_context", "_k8", "_k_descale", "_layer", "_q8", "_unit", "_v8", "_v_descale", "fires", "write")

    def __init__(self, backend: Any, layer: Any, where: context.Context | None) -> None:
        self._layer = layer
        self._context = where
        self._unit = backend.k_scale
        self._k_descale = descale(layer.k_scale, self._unit)
        self._v_descale = descale(layer.v_scale, self._unit)
        self.fires = False
        self.write: tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor | None]

    def fall_back(self, k: torch.Tensor, v: torch.Tensor, memory: Memory) -> None:
        """Saturate k and v for the KV write; attention stays the backend's own."""
        k_scale, v_scale = self._layer.k_scale, self._layer.v_scale
        self.write = (
            _saturated(memory, k, self._k_descale),
            _saturated(memory, v, self._v_descale),
            # As upstream passes them on, 0-D ones too.
            self._unit if k_scale is None else k_scale,
            self._unit if v_scale is None else v_scale,
        )

    def fire(self, backend: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, memory: Memory) -> None:
        """Cast q at unit scale, k and v at the layer's; the KV write gets the same bytes wherever its own are the same.

        The 5-D pool divides in the model's dtype before it casts, so a scaled layer's bytes differ there by a rounding:
        that write gets k and v as they were, saturated.
        """
        layer = self._layer
        self._q8, self._k8, self._v8 = quantize_qkv(
            q, k, v, layer.tp_q_head_num, layer.tp_k_head_num, self._k_descale, self._v_descale, memory.saturated
        )
        self.fires = True
        if backend.kv_cache_is_vectorized_5d and not (layer.k_scale is None and layer.v_scale is None):
            self.write = (
                saturate(k, self._k_descale),
                saturate(v, self._v_descale),
                self._k_descale,
                self._v_descale,
            )
        else:
            self.write = (self._k8, self._v8, None, None)

    def attend(self, backend: Any, forward_batch: Any) -> torch.Tensor:
        """Run the assembly kernel.

        Args:
            backend: The AiterAttnBackend; its ``qo_indptr`` holds the batch's int32 offsets.
            forward_batch: The ForwardBatch.

        Returns:
            (tokens, q heads x head dim) in the model's dtype.

        Raises:
            FastPathError: The kernel raised.
        """
        layer = self._layer
        metadata = backend.forward_metadata
        offsets = backend.qo_indptr[: forward_batch.batch_size + 1]
        where = self._context
        try:
            if where is None:
                out = self._packed(self._k8, self._v8, offsets, offsets, metadata.max_q_len, metadata.max_q_len)
            elif where.slots is not None:
                k8, v8 = context.gather(backend, layer, where.slots)
                out = self._packed(k8, v8, offsets, where.offsets, metadata.max_q_len, where.longest)
            else:
                out = self._paged(backend, where, offsets, metadata.max_q_len)
        except Exception as error:
            raise FastPathError(_complaint(layer, error)) from error
        if out.dtype != backend.input_dtype:
            out = out.to(backend.input_dtype)
        return out.view(-1, layer.tp_q_head_num * layer.v_head_dim)

    def _packed(self, k8: Any, v8: Any, q_offsets: Any, k_offsets: Any, longest_q: int, longest_k: int) -> Any:
        return aiter.flash_attn_varlen_fp8_pertensor_func(
            self._q8,
            k8,
            v8,
            self._unit,
            self._k_descale,
            self._v_descale,
            q_offsets,
            k_offsets,
            longest_q,
            longest_k,
            softmax_scale=self._layer.scaling,
            causal=True,
        )

    def _paged(self, backend: Any, where: context.Context, offsets: Any, longest_q: int) -> Any:
        k_cache, v_cache = context.in_place(backend, self._layer)
        return aiter.mha_batch_prefill_func(
            self._q8,
            k_cache,
            v_cache,
            offsets,
            where.offsets,
            where.pages,
            longest_q,
            where.longest,
            softmax_scale=self._layer.scaling,
            causal=True,
            window_size=(-1, -1),
            q_descale=self._unit,
            k_descale=self._k_descale,
            v_descale=self._v_descale,
            kv_last_page_lens=where.last,
        )


def _complaint(layer: Any, error: Exception) -> str:
    passed = ", ".join(condition.id for condition in CONDITIONS)
    return (
        f"fastfill: the fp8 head-dim-256 kernel raised on layer {layer.layer_id}: {error}. "
        f"Every condition had passed: {passed}. "
        "Next: fastfill path off, which serves by the fallback without a restart; then fastfill kernel identify."
    )


LAYERS: dict[tuple[int, int], gate.LayerVerdict] = {}
"""Verdict of every layer seen so far, by backend and layer id, for the rank's status."""


def _judge_layer(backend: Any, layer: Any, k: torch.Tensor | None, sinks: Any) -> gate.LayerVerdict:
    facts = deployment.layer_facts(backend, layer, has_kv=k is not None, sinks=sinks is not None)
    verdict = gate.judge_layer(facts)
    layer.fastfill_verdict = verdict
    LAYERS[id(backend), layer.layer_id] = verdict
    return verdict


def _saturated(memory: Memory, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    safe = saturate(x, scale)
    # NaN differs from itself; it is counted, being no finite fp8 value either.
    memory.saturated += torch.count_nonzero(safe != x)
    return safe


def begin(
    backend: Any,
    q: torch.Tensor,
    k: torch.Tensor | None,
    v: torch.Tensor | None,
    layer: Any,
    forward_batch: Any,
    sinks: Any,
) -> Prefill | None:
    """Decide and prepare one layer's prefill, before its KV write.

    Args:
        backend: The AiterAttnBackend.
        q: (tokens, q heads x 256) or (tokens, q heads, 256), the model's dtype.
        k: (tokens, kv heads, 256) or None.
        v: (tokens, kv heads, 256) or None.
        layer: The RadixAttention.
        forward_batch: The ForwardBatch.
        sinks: Attention sinks or None.

    Returns:
        None when nothing changes for this layer: the flag is off, the KV cache is not fp8, or this is no prefill.
        Otherwise what to write to the cache, and whether the fast path fires.
    """
    verdict: gate.LayerVerdict | None = layer.__dict__.get("fastfill_verdict")
    if verdict is None:
        verdict = _judge_layer(backend, layer, k, sinks)
    if not verdict.flag:
        if LEDGER.open:
            # Written out: a call would be a fifth of what the flag costs when it is off.
            reasons, first = LEDGER.reasons, verdict.stops[0]
            reasons[first] = reasons.get(first, 0) + 1
        return None
    forward_pass: passes.Pass | None = forward_batch.__dict__.get("fastfill_pass")
    if (
        forward_pass is None
        or forward_pass.backend is not backend
        or forward_pass.mode is not forward_batch.forward_mode
        or forward_pass.prefixes is not forward_batch.extend_prefix_lens_cpu
    ):
        forward_pass = passes.judge(backend, forward_batch)
    if sinks is not None and not verdict.facts.sinks:
        verdict = _judge_layer(backend, layer, k, sinks)
    if not forward_pass.final and verdict.reason is None:
        forward_pass.finish(forward_batch, layer)
    reason = gate.reason(verdict, forward_pass.verdict)
    if reason is not None:
        LEDGER.skip(reason)
    if k is None or v is None or backend.kv_cache_dtype != FP8 or backend.use_mla:
        return None
    if "not_extend" in forward_pass.verdict.stops:
        return None
    memory = backend.fastfill_memory
    prefill = Prefill(backend, layer, forward_pass.context)
    if reason is None:
        prefill.fire(backend, q, k, v, memory)
    else:
        prefill.fall_back(k, v, memory)
    return prefill


def fallback_q(backend: Any, q: torch.Tensor, layer: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """q and its descale for the fp8 fallback, called after ``begin``.

    Upstream casts q at unit scale and descales it by k_scale, which is wrong for every scale but 1 (SGLang up to
    0.5.22). With the flag on q's descale is 1 and the cast saturates, so that a prompt's later chunks are as right as
    its first; with the flag off this is upstream's arithmetic.

    Returns:
        q in the KV cache's fp8 dtype, of q's shape, and its descale.
    """
    dtype = backend.kv_cache_dtype
    if not layer.fastfill_verdict.flag:
        return q.to(dtype), layer.k_scale if layer.k_scale is not None else backend.k_scale
    limit = torch.finfo(dtype).max
    return q.clamp(-limit, limit).to(dtype), backend.k_scale


def fresh_shortcut(layer: Any) -> bool:
    """Whether the 5-D pool's shortcut for fresh prompts is right for this layer, called after ``begin``.

    It attends over k and v as the KV write left them: divided in place by the layer's scales. With the flag on, layers
    whose scales are not 1 gather from the cache instead, where the descales are applied.
    """
    return not layer.fastfill_verdict.flag or not _scaled(layer)


def _scaled(layer: Any) -> bool:
    scales = (layer.k_scale, layer.v_scale)
    known = layer.__dict__.get("fastfill_scaled")
    if known is not None and known[0] is scales[0] and known[1] is scales[1]:
        return bool(known[2])
    # One device-to-host read per layer, on the first 5-D fallback; the fast path never comes here.
    scaled = any(scale is not None and bool((scale != 1.0).any()) for scale in scales)
    layer.fastfill_scaled = (*scales, scaled)
    return scaled
