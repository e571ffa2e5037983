"""aiter.ops.triton.gluon.pa_decode_gluon: decode over the vectorized 5-D cache, which SGLang gives up without it."""

from __future__ import annotations

from .... import _trace
from ...._ck import _linear_pages
from ...._math import attend, scalar

NAME = "paged_attention_decode_sliding_window"


def get_recommended_splits(num_sequences, num_kv_heads):
    """How many parts to cut a context into; it changes speed only."""
    return max(1, min(8, 256 // max(1, int(num_sequences) * int(num_kv_heads))))


def pa_decode_gluon(
    output,
    query,
    key_cache,
    value_cache,
    context_lengths,
    block_tables,
    softmax_scale,
    query_length,
    max_context_partition_num,
    context_partition_size,
    compute_type,
    query_scale=None,
    key_scale=None,
    value_scale=None,
    exp_sums=None,
    max_logits=None,
    temporary_output=None,
    alibi_slopes=None,
    sinks=None,
    sliding_window=0,
    ps=False,
    **_ignored,
):
    """Write attention into ``output`` (batch x query_length, Hq, Dv); for the cache see ``_ck._linear_pages``."""
    if alibi_slopes is not None:
        raise NotImplementedError("the emulated pa_decode_gluon takes no alibi")
    lengths = context_lengths.tolist()
    page = key_cache.shape[3]
    with _trace.kernel(NAME, "gluon_decode", q=_trace.shape(query), lengths=lengths):
        for sequence, length in enumerate(lengths):
            pages = block_tables[sequence, : -(-length // page)]
            rows = slice(sequence * query_length, (sequence + 1) * query_length)
            answer = attend(
                query[rows].float(),
                _linear_pages(key_cache, pages, length, values=False),
                _linear_pages(value_cache, pages, length, values=True),
                softmax_scale * scalar(query_scale) * scalar(key_scale),
                causal=True,
                left=sliding_window - 1 if sliding_window > 0 else -1,
                sink=sinks,
            )
            output[rows] = (answer * scalar(value_scale)).to(output.dtype)
