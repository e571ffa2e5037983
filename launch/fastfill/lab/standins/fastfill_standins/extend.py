"""Attention of new tokens over a cache in torch: what ``extend_attention_fwd`` (SGLang's Triton kernel) computes."""

from __future__ import annotations

import itertools

import torch


def extend_attention_fwd(
    q_extend: torch.Tensor,
    k_extend: torch.Tensor,
    v_extend: torch.Tensor,
    o_extend: torch.Tensor,
    k_buffer: torch.Tensor,
    v_buffer: torch.Tensor,
    qo_indptr: torch.Tensor,
    kv_indptr: torch.Tensor,
    kv_indices: torch.Tensor,
    custom_mask: torch.Tensor | None,
    is_causal: bool,
    mask_indptr: torch.Tensor | None,
    max_len_extend: int,
    k_scale: float = 1.0,
    v_scale: float = 1.0,
    sm_scale: float | None = None,
    logit_cap: float = 0.0,
) -> None:
    """Write the attention of each sequence's new tokens over its cached ones and themselves into ``o_extend``.

    Args:
        q_extend: Shape (tokens, Hq, D).
        k_extend, v_extend: Shape (tokens, Hk, D), as they were before the cache's dtype.
        k_buffer, v_buffer: Shape (slots, Hk, D), any dtype.
        qo_indptr: Where each sequence's new tokens begin, one more than sequences.
        kv_indptr: Where its slots begin in ``kv_indices``.
        custom_mask: Rows of (cached + new) bool for each new token; only the columns of new tokens are read.
        mask_indptr: Where each sequence's rows begin.

    Raises:
        NotImplementedError: A soft cap.
    """
    if logit_cap:
        raise NotImplementedError("the lab's extend_attention_fwd has no logit_cap")
    scale = sm_scale or q_extend.shape[-1] ** -0.5
    group = q_extend.shape[1] // k_extend.shape[1]
    tokens, slots = qo_indptr.tolist(), kv_indptr.tolist()
    for row, ((begin, end), (first, last)) in enumerate(
        zip(itertools.pairwise(tokens), itertools.pairwise(slots), strict=False)
    ):
        cached, new = last - first, end - begin
        places = kv_indices[first:last].long()
        k = torch.cat([_read(k_buffer, places) * k_scale, k_extend[begin:end].float()]).repeat_interleave(group, 1)
        v = torch.cat([_read(v_buffer, places) * v_scale, v_extend[begin:end].float()]).repeat_interleave(group, 1)
        seen = torch.ones(new, cached + new, dtype=torch.bool)
        if custom_mask is not None and mask_indptr is not None:
            at = int(mask_indptr[row])
            seen[:, cached:] = custom_mask[at : at + seen.numel()].view(new, cached + new)[:, cached:].bool()
        elif is_causal:
            seen[:, cached:] = torch.ones(new, new, dtype=torch.bool).tril()
        scores = torch.einsum("qhd,khd->hqk", q_extend[begin:end].float() * scale, k)
        weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
        o_extend[begin:end] = torch.einsum("hqk,khd->qhd", weights, v).to(o_extend.dtype)


def _read(buffer: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Slots as fp32; torch has no indexed read of fp8 on a CPU."""
    if buffer.element_size() == 1:
        return buffer.view(torch.uint8)[places].view(buffer.dtype).float()
    return buffer[places].float()
