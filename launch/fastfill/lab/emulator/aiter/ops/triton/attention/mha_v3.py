"""aiter.ops.triton.attention.mha_v3: where ENABLE_CK=0 sends the fp8 function, past the assembly kernel."""

from __future__ import annotations

import torch

from .... import _trace
from ...._math import attend, scalar

NAME = "_attn_fwd"


def flash_attn_varlen_func(
    q,
    k,
    v,
    cu_seqlens_q,
    cu_seqlens_k,
    max_seqlen_q,
    max_seqlen_k,
    softmax_scale=None,
    causal=False,
    q_descale=None,
    k_descale=None,
    v_descale=None,
    window_size=(-1, -1),
    **_ignored,
):
    """Packed attention in Triton; fp8 input gives fp32 output, as aiter's version does."""
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    starts_q, starts_k = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    dtype = torch.float32 if q.element_size() == 1 else q.dtype
    result = torch.empty(q.shape[0], q.shape[1], v.shape[-1], dtype=dtype)
    with _trace.kernel(NAME, "triton", q=_trace.shape(q), k=_trace.shape(k), cu_q=starts_q, cu_k=starts_k):
        for sequence in range(len(starts_q) - 1):
            rows = slice(starts_q[sequence], starts_q[sequence + 1])
            keys = slice(starts_k[sequence], starts_k[sequence + 1])
            answer = attend(
                q[rows].float(),
                k[keys].float(),
                v[keys].float(),
                scale * scalar(q_descale) * scalar(k_descale),
                causal=causal,
                left=int(window_size[0]),
                right=int(window_size[1]),
            )
            result[rows] = (answer * scalar(v_descale)).to(dtype)
    return result
