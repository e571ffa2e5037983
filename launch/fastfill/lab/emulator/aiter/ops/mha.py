"""aiter.ops.mha: the functions that SGLang calls, and the dispatch points they look up at each call.

The dispatch points are module globals, as in aiter: ``fmha_v3_varlen_fwd`` is the assembly kernel, ``mha_varlen_fwd``
and ``mha_batch_prefill`` are composable-kernel. Replacing a global changes the next call.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .. import _asm, _ck, _trace, faults
from .._trace import shape as _shape
from ..jit.core import ENABLE_CK
from ..jit.utils.chip_info import get_gfx
from ..utility import dtypes

__all__ = [
    "flash_attn_varlen_fp8_pertensor_func",
    "flash_attn_varlen_func",
    "fmha_v3_varlen_fwd",
    "mha_batch_prefill",
    "mha_batch_prefill_func",
    "mha_varlen_fwd",
]


def _rest(q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    empty = torch.empty(0)
    return empty, empty, torch.empty(2, dtype=torch.int64)


def _refuse(**unsupported: object) -> None:
    given = [name for name, value in unsupported.items() if value]
    if given:
        raise NotImplementedError(f"the emulated aiter does not take {', '.join(given)}")


def fmha_v3_varlen_fwd(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    min_seqlen_q: int,
    dropout_p: float,
    softmax_scale: float,
    logits_soft_cap: float,
    zero_tensors: bool,
    is_causal: bool,
    window_size_left: int,
    window_size_right: int,
    return_softmax_lse: bool,
    return_dropout_randval: bool,
    how_v3_bf16_cvt: int,
    out: Tensor | None = None,
    block_table: Tensor | None = None,
    bias: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    q_descale: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
    gen: torch.Generator | None = None,
    cu_seqlens_q_padded: Tensor | None = None,
    cu_seqlens_k_padded: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The assembly kernel: packed q (total_q, Hq, D), k and v (total_k, Hk, D), fp8 or bf16, gfx950.

    Returns:
        (out, lse, dropout mask, rng state); out has shape (total_q, Hq, Dv), bf16 for fp8 input.

    Raises:
        RuntimeError: A check of the C++ side fails, or no kernel exists for the combination.
    """
    _refuse(
        block_table=block_table is not None,
        lse=return_softmax_lse,
        padding=cu_seqlens_q_padded is not None or cu_seqlens_k_padded is not None,
    )
    result = _asm.varlen_fwd(
        q,
        k,
        v,
        cu_seqlens_q,
        cu_seqlens_k,
        max_seqlen_q,
        max_seqlen_k,
        softmax_scale,
        is_causal,
        window_size_left,
        window_size_right,
        out,
        q_descale,
        k_descale,
        v_descale,
    )
    return (result, *_rest(q))


def mha_varlen_fwd(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    min_seqlen_q: int,
    dropout_p: float,
    softmax_scale: float,
    logits_soft_cap: float,
    zero_tensors: bool,
    is_causal: bool,
    window_size_left: int,
    window_size_right: int,
    sink_size: int,
    return_softmax_lse: bool,
    return_dropout_randval: bool,
    out: Tensor | None = None,
    block_table: Tensor | None = None,
    bias: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    q_descale: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
    gen: torch.Generator | None = None,
    cu_seqlens_q_padded: Tensor | None = None,
    cu_seqlens_k_padded: Tensor | None = None,
    sink_ptr: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Composable kernel's packed attention; it has no fp8 instance of head dim 256.

    Raises:
        NotImplementedError: A dtype that it has no family for.
        RuntimeError: "invalid argument for fmha_fwd", for what it has no instance of.
    """
    _refuse(
        block_table=block_table is not None,
        bias=bias is not None or alibi_slopes is not None,
        dropout=dropout_p,
        lse=return_softmax_lse,
        padding=cu_seqlens_q_padded is not None or cu_seqlens_k_padded is not None,
    )
    assert cu_seqlens_k is not None
    causal = is_causal and max_seqlen_q != 1
    result = _ck.varlen_fwd(
        q,
        k,
        v,
        cu_seqlens_q,
        cu_seqlens_k,
        softmax_scale,
        logits_soft_cap,
        causal,
        window_size_left,
        window_size_right,
        out,
        q_descale,
        k_descale,
        v_descale,
        sink_ptr,
    )
    return (result, *_rest(q))


def mha_batch_prefill(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    kv_indptr: Tensor,
    kv_page_indices: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float,
    softmax_scale: float,
    logits_soft_cap: float,
    zero_tensors: bool,
    is_causal: bool,
    window_size_left: int,
    window_size_right: int,
    sink_size: int,
    return_softmax_lse: bool,
    return_dropout_randval: bool,
    out: Tensor | None = None,
    bias: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    q_descale: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
    kv_block_descale: Tensor | None = None,
    kv_last_page_lens: Tensor | None = None,
    block_table: Tensor | None = None,
    seqlen_k: Tensor | None = None,
    sink_ptr: Tensor | None = None,
    gen: torch.Generator | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Composable kernel's attention over a paged cache: SGLang's prefill without the fast path."""
    _refuse(
        bias=bias is not None or alibi_slopes is not None,
        dropout=dropout_p,
        lse=return_softmax_lse,
        kv_block_descale=kv_block_descale is not None,
    )
    causal = is_causal and max_seqlen_q != 1
    result = _ck.batch_prefill(
        q,
        k,
        v,
        cu_seqlens_q,
        kv_indptr,
        kv_page_indices,
        softmax_scale,
        logits_soft_cap,
        causal,
        window_size_left,
        window_size_right,
        out,
        q_descale,
        k_descale,
        v_descale,
        kv_last_page_lens,
        block_table,
        seqlen_k,
        sink_ptr,
    )
    return (result, *_rest(q))


def _has_hd256() -> bool:
    return not faults.has("no_hd256")


def _is_v3_fp8(
    q: Tensor, v: Tensor, batch: int, q_descale: Tensor | None, k_descale: Tensor | None, v_descale: Tensor | None
) -> bool:
    """aiter's ``is_fmha_v3_fp8``: the assembly kernel takes these fp8 inputs."""
    dims = (q.shape[-1], v.shape[-1])
    if get_gfx() not in ("gfx942", "gfx950") or q.dtype != dtypes.fp8:
        return False
    if dims != (128, 128) and not (dims == (256, 256) and get_gfx() == "gfx950" and _has_hd256()):
        return False
    if q_descale is None or k_descale is None or v_descale is None:
        return False
    if tuple(q_descale.shape) not in ((1,), (batch, v.shape[-2])):
        return False
    return q_descale.shape == k_descale.shape == v_descale.shape


def _takes_assembly(
    q: Tensor, v: Tensor, v3_fp8: bool, sliding: bool, softcap: float, plain: bool, dropout_p: float
) -> bool:
    """aiter's ``can_impl_fmha_v3_fwd``. The 32-bit reach of the kernel's offsets is not among its tests."""
    dims = (q.shape[-1], v.shape[-1])
    heads_q, heads_k = q.shape[1], v.shape[-2]
    if get_gfx() not in ("gfx942", "gfx950") or not plain or dropout_p != 0.0 or sliding or softcap != 0.0:
        return False
    if dims not in ((128, 128), (192, 128)) and not (dims == (256, 256) and v3_fp8):
        return False
    if heads_q % heads_k or not (q.dtype == dtypes.bf16 or v3_fp8):
        return False
    ratio = heads_q // heads_k
    return not v3_fp8 or ratio & (ratio - 1) == 0


def _varlen_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    min_seqlen_q: int,
    softmax_scale: float,
    logits_soft_cap: float,
    causal: bool,
    window_size: tuple[int, ...],
    q_descale: Tensor | None,
    k_descale: Tensor | None,
    v_descale: Tensor | None,
    bias: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    dropout_p: float = 0.0,
    return_lse: bool = False,
    return_softmax: bool = False,
    how_v3_bf16_cvt: int = 1,
    block_table: Tensor | None = None,
    out: Tensor | None = None,
    cu_seqlens_q_padded: Tensor | None = None,
    cu_seqlens_k_padded: Tensor | None = None,
    sink_ptr: Tensor | None = None,
) -> Tensor:
    left = -1 if window_size[0] >= max_seqlen_k else int(window_size[0])
    right = -1 if window_size[1] >= max_seqlen_k else int(window_size[1])
    sink_size = int(window_size[2]) if len(window_size) > 2 else 0
    batch = cu_seqlens_q.numel() - 1
    v3_fp8 = _is_v3_fp8(q, v, batch, q_descale, k_descale, v_descale)
    plain = bias is None and alibi_slopes is None
    # A window of exactly 0 does not count as sliding here; the assembly kernel's C++ side then refuses it.
    sliding = left > 0 or right > 0
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
    common = (
        q,
        k,
        v,
        cu_seqlens_q,
        cu_seqlens_k,
        max_seqlen_q,
        max_seqlen_k,
        min_seqlen_q,
        dropout_p,
        softmax_scale,
        logits_soft_cap,
        False,
        causal,
        left,
        right,
    )
    if _takes_assembly(q, v, v3_fp8, sliding, logits_soft_cap, plain, dropout_p):
        return fmha_v3_varlen_fwd(
            *common,
            return_lse,
            return_softmax,
            how_v3_bf16_cvt,
            out,
            block_table,
            bias,
            alibi_slopes,
            q_descale,
            k_descale,
            v_descale,
            None,
            cu_seqlens_q_padded,
            cu_seqlens_k_padded,
        )[0]
    return mha_varlen_fwd(
        *common,
        sink_size,
        return_lse,
        return_softmax,
        out=out,
        block_table=block_table,
        bias=bias,
        alibi_slopes=alibi_slopes,
        q_descale=q_descale,
        k_descale=k_descale,
        v_descale=v_descale,
        gen=None,
        cu_seqlens_q_padded=cu_seqlens_q_padded,
        cu_seqlens_k_padded=cu_seqlens_k_padded,
        sink_ptr=sink_ptr,
    )[0]


def _padded(x: Tensor) -> Tensor:
    rest = x.shape[-1] % 8
    return torch.nn.functional.pad(x, [0, 8 - rest]) if rest else x


def flash_attn_varlen_func(
    q,
    k,
    v,
    cu_seqlens_q,
    cu_seqlens_k,
    max_seqlen_q,
    max_seqlen_k,
    min_seqlen_q=0,
    dropout_p=0.0,
    softmax_scale=None,
    logits_soft_cap=0.0,
    causal=False,
    window_size=(-1, -1, 0),
    bias=None,
    alibi_slopes=None,
    deterministic=False,
    return_lse=False,
    return_attn_probs=False,
    how_v3_bf16_cvt=1,
    block_table=None,
    out=None,
    cu_seqlens_q_padded: Tensor | None = None,
    cu_seqlens_k_padded: Tensor | None = None,
    sink_ptr: Tensor | None = None,
):
    """Packed attention in bf16 or fp16: assembly for head dim 128 in bf16, composable kernel otherwise."""
    _trace.log("function", "flash_attn_varlen_func", q=_shape(q), k=_shape(k))
    if not ENABLE_CK:
        from .triton.attention.mha import flash_attn_varlen_func as in_triton

        return in_triton(
            q=q,
            k=k,
            v=v,
            cu_seqlens_q=cu_seqlens_q,
            cu_seqlens_k=cu_seqlens_k,
            max_seqlen_q=max_seqlen_q,
            max_seqlen_k=max_seqlen_k,
            softmax_scale=softmax_scale,
            causal=causal,
            window_size=window_size,
        )
    dim_v = v.shape[-1]
    answer = _varlen_forward(
        _padded(q),
        _padded(k),
        _padded(v),
        cu_seqlens_q,
        cu_seqlens_k,
        max_seqlen_q,
        max_seqlen_k,
        min_seqlen_q,
        q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale,
        logits_soft_cap,
        causal,
        window_size,
        None,
        None,
        None,
        bias=bias,
        alibi_slopes=alibi_slopes,
        dropout_p=dropout_p,
        return_lse=return_lse,
        return_softmax=return_attn_probs and dropout_p > 0,
        how_v3_bf16_cvt=how_v3_bf16_cvt,
        block_table=block_table,
        out=out,
        cu_seqlens_q_padded=cu_seqlens_q_padded,
        cu_seqlens_k_padded=cu_seqlens_k_padded,
        sink_ptr=sink_ptr,
    )
    return answer[..., :dim_v]


def flash_attn_varlen_fp8_pertensor_func(
    q,
    k,
    v,
    q_descale,
    k_descale,
    v_descale,
    cu_seqlens_q,
    cu_seqlens_k,
    max_seqlen_q,
    max_seqlen_k,
    min_seqlen_q=0,
    logits_soft_cap=0.0,
    causal=False,
    window_size=(-1, -1, 0),
    softmax_scale=None,
    sink_ptr=None,
):
    """Packed attention in fp8: q (total_q, Hq, D), k and v (total_k, Hk, D), descales fp32 of shape (1,).

    Returns:
        bf16, shape (total_q, Hq, Dv).

    Raises:
        NotImplementedError: q is not fp8 e4m3fn.
        RuntimeError: The dispatch misses the assembly kernel and composable kernel has no instance
            ("invalid argument for fmha_fwd"), or the assembly kernel refuses.
    """
    _trace.log("function", "flash_attn_varlen_fp8_pertensor_func", q=_shape(q), k=_shape(k))
    if not ENABLE_CK and sink_ptr is None:
        from .triton.attention.mha_v3 import flash_attn_varlen_func as in_triton

        return in_triton(
            q=q,
            k=k,
            v=v,
            cu_seqlens_q=cu_seqlens_q,
            cu_seqlens_k=cu_seqlens_k,
            max_seqlen_q=max_seqlen_q,
            max_seqlen_k=max_seqlen_k,
            softmax_scale=softmax_scale,
            causal=causal,
            q_descale=q_descale,
            k_descale=k_descale,
            v_descale=v_descale,
            window_size=(window_size[0], window_size[1]),
        )
    dim_v = v.shape[-1]
    answer = _varlen_forward(
        _padded(q),
        _padded(k),
        _padded(v),
        cu_seqlens_q,
        cu_seqlens_k,
        max_seqlen_q,
        max_seqlen_k,
        min_seqlen_q,
        q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale,
        logits_soft_cap,
        causal,
        window_size,
        q_descale,
        k_descale,
        v_descale,
        sink_ptr=sink_ptr,
    )
    return answer[..., :dim_v]


def mha_batch_prefill_func(
    q,
    k,
    v,
    cu_seqlens_q,
    kv_indptr,
    kv_page_indices,
    max_seqlen_q,
    max_seqlen_k,
    dropout_p=0.0,
    softmax_scale=None,
    logits_soft_cap=0.0,
    causal=False,
    window_size=(-1, -1),
    alibi_slopes=None,
    deterministic=False,
    return_lse=False,
    return_attn_probs=False,
    out=None,
    kv_last_page_lens=None,
    block_table=None,
    seqlen_k=None,
    q_descale=None,
    k_descale=None,
    v_descale=None,
    kv_block_descale=None,
    sink_ptr=None,
    sink_size: int = 0,
):
    """Attention over a paged cache of 3, 4 or 5 dimensions; see :func:`mha_batch_prefill`.

    Raises:
        ValueError: The cache's layout does not fit q, in aiter's words.
    """
    _trace.log("function", "mha_batch_prefill_func", q=_shape(q), k=_shape(k))
    vector = 16 // k.element_size()
    vectorized = k.dim() == 5 and v.dim() == 5
    if not vectorized and not (k.dim() == v.dim() and k.dim() in (3, 4)):
        raise ValueError("Batch prefill requires 5D vectorized, 4D linear, or 3D linear (page_size=1) K/V tensors")
    dim_q = q.shape[-1]
    dim_v = v.shape[-2] if vectorized else v.shape[-1]
    if dim_q % vector or dim_v % vector:
        raise ValueError("Batch prefill requires head size divisible by vector size")
    if vectorized:
        if k.shape[-3] * vector != dim_q:
            raise ValueError("K vectorized layout does not match Q head size")
        if k.shape[-2] % vector:
            raise ValueError("Vectorized KV requires page size divisible by vector size")
        if v.shape[-1] != vector:
            raise ValueError("Vectorized KV requires last dim equal to vector size")
    else:
        if k.shape[-1] != dim_q:
            raise ValueError("K linear layout does not match Q head size")
        if k.shape[1:3] != v.shape[1:3] and k.dim() == 4:
            raise ValueError("K/V linear layout must match page size and head count")
    if k.stride(-1) != 1 or v.stride(-1) != 1:
        raise ValueError("Batch prefill requires K/V with contiguous last dimension")
    answer = mha_batch_prefill(
        q if q.stride(-1) == 1 else q.contiguous(),
        k,
        v,
        cu_seqlens_q,
        kv_indptr,
        kv_page_indices,
        max_seqlen_q,
        max_seqlen_k,
        dropout_p,
        dim_q**-0.5 if softmax_scale is None else softmax_scale,
        logits_soft_cap,
        False,
        causal,
        window_size[0],
        window_size[1],
        sink_size,
        return_lse,
        return_attn_probs and dropout_p > 0,
        out,
        None,
        alibi_slopes,
        q_descale,
        k_descale,
        v_descale,
        kv_block_descale,
        kv_last_page_lens,
        block_table,
        seqlen_k,
        sink_ptr,
        None,
    )[0]
    return answer[..., :dim_v]


if faults.has("no_function"):
    del flash_attn_varlen_fp8_pertensor_func
    __all__.remove("flash_attn_varlen_fp8_pertensor_func")
