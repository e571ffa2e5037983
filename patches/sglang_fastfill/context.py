"""How a batch in which a sequence has a prefix reaches the kernel, where this SGLang has a way.

SGLang >= 0.5.19 gathers the cached k and v into one packed buffer; 0.5.21 and later can also read pages of 64 tokens in
place, with an aiter that has the paged kernel (ROCm/aiter#4971). Older ones have neither: such a batch leaves the path.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import torch

from sglang_fastfill.state import truthy

PAGED_FLAG = "SGLANG_AITER_PAGED_PREFILL_ASM"
"""Upstream's switch of the paged kernel, on by default there. Here it must be set to 1 in so many words: an aiter
without the kernel raises, and the gather, 1-2 % slower (sgl-project/sglang#36505), can be proven by its dispatch."""


class Context(NamedTuple):
    """Where the whole sequences of one batch, prefix and new tokens, lie in the KV pool.

    Attributes:
        slots: (context tokens,) slots of the pool, sequence by sequence; None when pages are read in place.
        offsets: (sequences + 1,) int32, where each sequence begins in ``slots``, or its pages in ``pages``.
        pages: (pages,) int32 page numbers, or None.
        last: (sequences,) int32 tokens in each sequence's last page, or None.
        longest: Tokens of the longest sequence.
    """

    slots: torch.Tensor | None
    offsets: torch.Tensor
    pages: torch.Tensor | None
    last: torch.Tensor | None
    longest: int


def find(backend: Any, forward_batch: Any, layer: Any) -> Context | None:
    """The context of a batch with a prefix, None when this SGLang has no way to bring it to the kernel.

    Upstream's indices are used as they are (0.5.23 aiter_backend.py:1319, 2591): they cost no wait for the device.

    Args:
        backend: The AiterAttnBackend, its metadata made for this batch.
        forward_batch: The ForwardBatch.
        layer: The RadixAttention whose KV buffer tells how many slots there are.
    """
    metadata = backend.forward_metadata
    gather = getattr(backend, "_asm_context_prefill_indices", None)
    if gather is None or backend.kv_cache_is_vectorized_5d or backend.use_mla:
        return None
    if metadata is None or metadata.max_kv_len is None:
        return None
    longest = int(metadata.max_kv_len)
    view = getattr(metadata, "paged_kv_view", None)
    if view is not None and truthy(os.environ.get(PAGED_FLAG)):
        offsets, pages, last = view
        return Context(None, offsets, pages, last, longest)
    k_cache, _ = backend.token_to_kv_pool.get_kv_buffer(layer.layer_id)
    slots, offsets = gather(forward_batch, forward_batch.batch_size, k_cache.shape[0])
    return None if slots is None else Context(slots, offsets, None, None, longest)


def gather(backend: Any, layer: Any, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The batch's k and v out of the pool, after the KV write.

    Args:
        backend: The AiterAttnBackend.
        layer: The RadixAttention.
        slots: (context tokens,) slots of the pool.

    Returns:
        k and v as (context tokens, kv heads, head dim) in the pool's fp8 dtype, contiguous.
    """
    cache = backend.token_to_kv_pool.get_kv_buffer(layer.layer_id)
    widths = ((layer.tp_k_head_num, layer.qk_head_dim), (layer.tp_v_head_num, layer.v_head_dim))
    k, v = (
        # As bytes: index_select does not exist for fp8.
        half.view(-1, heads * dim).view(torch.uint8).index_select(0, slots).view(half.dtype).view(-1, heads, dim)
        for half, (heads, dim) in zip(cache, widths, strict=True)
    )
    return k, v


def in_place(backend: Any, layer: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The pool's k and v as (pages, page size, kv heads, head dim)."""
    k_cache, v_cache = backend.token_to_kv_pool.get_kv_buffer(layer.layer_id)
    size = backend.page_size
    return (
        k_cache.view(-1, size, layer.tp_k_head_num, layer.qk_head_dim),
        v_cache.view(-1, size, layer.tp_v_head_num, layer.v_head_dim),
    )
