"""aiter.ops.attention: decode over a paged cache, and the names of the MLA path, which the lab's models never call."""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from .. import _trace
from .._ck import _gather_bytes
from .._math import attend, scalar

_MLA = (
    "get_mla_metadata_info_v1",
    "get_mla_metadata_v1",
    "get_ps_metadata_info_v1",
    "get_ps_metadata_v1",
    "mla_prefill_ps_asm_fwd",
    "mla_reduce_v1",
)
__all__ = ["paged_attention_ragged", *_MLA]  # noqa: PLE0604

RAGGED_NAME = "void paged_attention_ll4mi_QKV_mfma16_kernel"


def absent(name: str) -> Any:
    """A function of aiter's that SGLang imports and the lab never calls."""

    def call(*_args: Any, **_kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"the emulated aiter has no {name}")

    call.__name__ = call.__qualname__ = name
    return call


for _name in _MLA:
    globals()[_name] = absent(_name)


def paged_attention_ragged(
    out,
    workspace_buffer,
    query,
    key_cache,
    value_cache,
    scale,
    kv_indptr,
    kv_page_indices,
    kv_last_page_lens,
    block_size,
    max_num_partitions,
    alibi_slopes,
    kv_cache_dtype,
    kv_cache_layout,
    logits_soft_cap,
    k_scale,
    v_scale,
    fp8_out_scale=None,
    partition_size=256,
    mtp=1,
):
    """Decode: one query token a sequence, written into ``out`` (batch, Hq, Dv); the cache is (tokens, 1, Hk, D)."""
    if kv_cache_layout != "NHD" or block_size != 1 or alibi_slopes is not None or mtp != 1:
        raise NotImplementedError("the emulated paged_attention_ragged takes NHD, block size 1, no alibi, mtp 1")
    starts = kv_indptr.tolist()
    quantised = kv_cache_dtype != "auto"
    scale_k, scale_v = (scalar(k_scale), scalar(v_scale)) if quantised else (1.0, 1.0)
    keys, values = key_cache[:, 0], value_cache[:, 0]
    with _trace.kernel(RAGGED_NAME, "paged_decode", q=_trace.shape(query), cu_k=starts):
        for sequence in range(query.shape[0]):
            pages = kv_page_indices[starts[sequence] : starts[sequence + 1]]
            answer = attend(
                query[sequence : sequence + 1].float(),
                _gather(keys, pages),
                _gather(values, pages),
                scale * scale_k,
                causal=False,
                softcap=float(logits_soft_cap),
            )
            out[sequence : sequence + 1] = (answer * scale_v).to(out.dtype)
    return out


def _gather(cache: torch.Tensor, pages: torch.Tensor) -> torch.Tensor:
    part = cache[pages.long()] if cache.element_size() > 1 else _gather_bytes(cache, pages)
    return part.float()
