"""aiter.ops.triton.attention.unified_attention: Triton's attention over a paged cache, prefill and decode alike."""

from __future__ import annotations

from .... import _trace
from ...._ck import _linear_pages
from ...._math import attend, scalar

NAME = "kernel_unified_attention_2d"


def unified_attention(
    q,
    k,
    v,
    out,
    cu_seqlens_q,
    max_seqlen_q,
    seqused_k,
    max_seqlen_k,
    softmax_scale,
    causal,
    window_size,
    block_table,
    softcap,
    q_descale,
    k_descale,
    v_descale,
    q_scales=None,
    alibi_slopes=None,
    output_scale=None,
    qq_bias=None,
    sinks=None,
    shuffled_kv_cache=False,
    skip_reduce=False,
):
    """Write attention into ``out`` (total_q, Hq, Dv); the cache is (pages, page size, Hk, D)."""
    if alibi_slopes is not None or qq_bias is not None or shuffled_kv_cache:
        raise NotImplementedError("the emulated unified_attention takes no alibi, no qq_bias, no shuffled cache")
    starts, lengths = cu_seqlens_q.tolist(), seqused_k.tolist()
    page = k.shape[1]
    with _trace.kernel(NAME, "triton", q=_trace.shape(q), cu_q=starts, lengths=lengths):
        for sequence in range(len(starts) - 1):
            length = lengths[sequence]
            pages = block_table[sequence, : -(-length // page)]
            rows = slice(starts[sequence], starts[sequence + 1])
            if rows.start == rows.stop:
                continue
            answer = attend(
                q[rows].float(),
                _linear_pages(k, pages, length, values=False),
                _linear_pages(v, pages, length, values=True),
                softmax_scale * scalar(q_descale) * scalar(k_descale),
                causal=bool(causal),
                left=int(window_size[0]),
                softcap=float(softcap or 0.0),
                sink=sinks,
            )
            out[rows] = (answer * scalar(v_descale)).to(out.dtype)
