"""The composable-kernel side: packed attention and attention over a paged cache."""

from __future__ import annotations

import torch

from . import _trace
from ._math import attend, scalar
from .utility import dtypes

VARLEN_NAME = "void ck_tile::kentry<ck_tile::FmhaFwdKernel>"
PAGED_NAME = "void ck_tile::kentry<ck_tile::FmhaBatchPrefillWithPagedKVCacheKernel>"
# SGLang 0.5.23 aiter_backend.py:4610: composable kernel has nothing for a linear fp8 cache in pages of 64 at this size.
# aiter has a kernel for it after #4971, which this commit (c16d44b93a) is older than.
_NO_LINEAR_FP8 = ((256, 64),)
_FP8_GROUP_HEAD_DIMS = ((64, 64), (128, 128), (192, 128), (192, 192))


def variant(dtype: torch.dtype, out: torch.Tensor | None) -> str:
    """The name of the kernel family for a q dtype.

    Raises:
        NotImplementedError: CK has no family for it.
    """
    if dtype == dtypes.fp16:
        return "fp16"
    if dtype == dtypes.bf16:
        return "bf16"
    if dtype == dtypes.fp8:
        if out is None or out.dtype == dtypes.bf16:
            return "fp8bf16"
        raise NotImplementedError("Unsupported output dtype for FP8 MHA")
    raise NotImplementedError("Unsupported dtype for MHA")


def _answer(q: torch.Tensor, heads: int, dim: int, out: torch.Tensor | None) -> torch.Tensor:
    dtype = torch.bfloat16 if q.dtype == dtypes.fp8 else q.dtype
    return torch.empty(q.shape[0], heads, dim, dtype=dtype) if out is None else out


def varlen_fwd(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    softmax_scale: float,
    softcap: float,
    causal: bool,
    left: int,
    right: int,
    out: torch.Tensor | None,
    q_descale: torch.Tensor | None,
    k_descale: torch.Tensor | None,
    v_descale: torch.Tensor | None,
    sink: torch.Tensor | None,
) -> torch.Tensor:
    """Packed attention.

    Raises:
        NotImplementedError: A dtype that CK has no family for.
        RuntimeError: A combination that CK compiles no instance of: fp8 with a head dim of 256, above all.
    """
    family = variant(q.dtype, out)
    if family == "fp8bf16" and (q.shape[-1], v.shape[-1]) not in _FP8_GROUP_HEAD_DIMS:
        raise RuntimeError("invalid argument for fmha_fwd")
    starts_q, starts_k = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    result = _answer(q, q.shape[1], v.shape[-1], out)
    with _trace.kernel(VARLEN_NAME, "ck", q=_trace.shape(q), k=_trace.shape(k), cu_q=starts_q, cu_k=starts_k):
        scale = softmax_scale * scalar(q_descale) * scalar(k_descale)
        for sequence in range(len(starts_q) - 1):
            rows = slice(starts_q[sequence], starts_q[sequence + 1])
            keys = slice(starts_k[sequence], starts_k[sequence + 1])
            answer = attend(
                q[rows].float(),
                k[keys].float(),
                v[keys].float(),
                scale,
                causal=causal,
                left=left,
                right=right,
                softcap=softcap,
                sink=sink,
            )
            result[rows] = (answer * scalar(v_descale)).to(result.dtype)
    return result


def _linear_pages(cache: torch.Tensor, pages: torch.Tensor, length: int, values: bool) -> torch.Tensor:
    """The first ``length`` tokens of the pages, fp32, shape (length, Hk, D), whatever the cache's layout.

    Layouts: 3-D (tokens, Hk, D), one token a page; 4-D (pages, page size, Hk, D); 5-D, aiter's vectorized one, with x
    elements to 16 bytes: K (pages, Hk, D/x, page size, x), V (pages, Hk, page size/x, D, x).
    """
    part = cache[pages.long()] if cache.element_size() > 1 else _gather_bytes(cache, pages)
    part = part.float()
    if cache.dim() == 5:
        part = part.permute(0, 2, 4, 1, 3).flatten(1, 2) if values else part.permute(0, 3, 1, 2, 4).flatten(3, 4)
    if cache.dim() >= 4:
        part = part.flatten(0, 1)
    return part[:length]


def _gather_bytes(cache: torch.Tensor, pages: torch.Tensor) -> torch.Tensor:
    # torch has no indexing for fp8 on a CPU.
    return cache.view(torch.uint8)[pages.long()].view(cache.dtype)


def batch_prefill(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    kv_indptr: torch.Tensor,
    kv_page_indices: torch.Tensor,
    softmax_scale: float,
    softcap: float,
    causal: bool,
    left: int,
    right: int,
    out: torch.Tensor | None,
    q_descale: torch.Tensor | None,
    k_descale: torch.Tensor | None,
    v_descale: torch.Tensor | None,
    kv_last_page_lens: torch.Tensor | None,
    block_table: torch.Tensor | None,
    seqlen_k: torch.Tensor | None,
    sink: torch.Tensor | None,
) -> torch.Tensor:
    """Attention over a paged cache; layouts in :func:`_linear_pages`.

    Raises:
        NotImplementedError: A dtype that CK has no family for.
        RuntimeError: A check of aiter's C++ side fails, or CK has no instance: an fp8 head dim of 256 in pages of 64.
    """
    family = variant(q.dtype, out)
    page = 1 if k.dim() == 3 else (k.shape[1] if k.dim() == 4 else k.shape[3])
    if q.shape[-1] > 256:
        raise RuntimeError("CK only supports head dimension at most 256")
    if page > 1 and block_table is None and kv_last_page_lens is None:
        raise RuntimeError("if page_block_size > 1, must pass kv_last_page_lens to kernel")
    if family == "fp8bf16" and k.dim() == 4 and (q.shape[-1], page) in _NO_LINEAR_FP8:
        raise RuntimeError(
            f"invalid argument for batch_prefill: no matching kernel found. page_size={page}, num_pages={k.shape[0]}, "
            f"dtype={family}"
        )
    starts_q, starts_k = cu_seqlens_q.tolist(), kv_indptr.tolist()
    dim_v = v.shape[-2] if v.dim() == 5 else v.shape[-1]
    result = _answer(q, q.shape[1], dim_v, out)
    with _trace.kernel(PAGED_NAME, "ck", q=_trace.shape(q), k=_trace.shape(k), cu_q=starts_q, cu_k=starts_k):
        scale = softmax_scale * scalar(q_descale) * scalar(k_descale)
        for sequence in range(len(starts_q) - 1):
            if block_table is not None and seqlen_k is not None:
                length = int(seqlen_k[sequence])
                pages = block_table[sequence, : -(-length // page)]
            else:
                pages = kv_page_indices[starts_k[sequence] : starts_k[sequence + 1]]
                length = pages.numel() * page
                if kv_last_page_lens is not None and pages.numel():
                    length += int(kv_last_page_lens[sequence]) - page
            rows = slice(starts_q[sequence], starts_q[sequence + 1])
            answer = attend(
                q[rows].float(),
                _linear_pages(k, pages, length, values=False),
                _linear_pages(v, pages, length, values=True),
                scale,
                causal=causal,
                left=left,
                right=right,
                softcap=softcap,
                sink=sink,
            )
            result[rows] = (answer * scalar(v_descale)).to(result.dtype)
    return result
