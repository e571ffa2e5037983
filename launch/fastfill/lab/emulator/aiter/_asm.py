"""The assembly kernel of ``module_fmha_v3_varlen_fwd``: checks of its C++ side, then its answers."""

from __future__ import annotations

import csv
import functools
import itertools
from pathlib import Path

import torch

from . import _trace
from ._math import attend, p_in_fp8, scalar
from .faults import AnswerFaults
from .jit import core

_answer_faults = AnswerFaults()
_TILE = 256


@functools.lru_cache(maxsize=1)
def _table() -> dict[tuple[str, int, int, int, int], tuple[str, str]]:
    """The rows of fmha_fwd.csv: (dtype, hdim_q, hdim_v, mask, mode) to (symbol, file)."""
    path = Path(core.AITER_ASM_DIR) / "gfx950" / "fmha_v3_fwd" / "fmha_fwd.csv"
    with path.open(encoding="utf-8", newline="") as file:
        return {
            (row["dtype"], int(row["hdim_q"]), int(row["hdim_v"]), int(row["mask"]), int(row["mode"])): (
                row["knl_name"],
                row["co_name"],
            )
            for row in csv.DictReader(file)
        }


def _check(holds: bool, text: str) -> None:
    if not holds:
        raise RuntimeError(text)


def _kv_heads(k: torch.Tensor, heads_q: int) -> torch.Tensor:
    """K or V as the kernel addresses it, shape (total_k, Hq, D).

    The kernel shifts the q head by min(floor(log2 ratio), 4). From a ratio of 32 on, the shift is too small, the head
    index runs past the last kv head, and the kernel reads on into the next token's row.
    """
    total, heads_k, dim = k.shape
    shift = min((heads_q // heads_k).bit_length() - 1, 4)
    head = torch.arange(heads_q) >> shift
    row = (torch.arange(total)[:, None] * heads_k + head[None, :]).clamp_max(total * heads_k - 1)
    return k.reshape(total * heads_k, dim)[row.reshape(-1)].reshape(total, heads_q, dim)


def _garbage(shape: tuple[int, ...]) -> torch.Tensor:
    # What stays in memory that was used before: finite and plausible, never what was asked for.
    return torch.randn(shape, generator=torch.Generator().manual_seed(0xBAD))


def varlen_fwd(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    softmax_scale: float,
    is_causal: bool,
    window_left: int,
    window_right: int,
    out: torch.Tensor | None,
    q_descale: torch.Tensor | None,
    k_descale: torch.Tensor | None,
    v_descale: torch.Tensor | None,
) -> torch.Tensor:
    """Answer a packed batch; shapes and dtypes as in :func:`aiter.ops.mha.fmha_v3_varlen_fwd`.

    Raises:
        RuntimeError: What the C++ side checks does not hold, or the table has no row for it.
    """
    fp8 = q.dtype in (torch.float8_e4m3fn, torch.float8_e4m3fnuz)
    _check(
        fp8 or q.dtype in (torch.float16, torch.bfloat16),
        "FlashAttention only support fp16, bf16 and fp8_e4m3 data type",
    )
    _check(k.dtype == q.dtype, "query and key must have the same dtype")
    _check(v.dtype == q.dtype, "query and value must have the same dtype")
    _check(cu_seqlens_q.dtype == torch.int32, "cu_seqlens_q must have dtype int32")
    _check(cu_seqlens_k.dtype == torch.int32, "cu_seqlens_k must have dtype int32")
    _check(not fp8 or out is None or out.dtype == torch.bfloat16, "For FP8 input, output must have dtype BF16 for now")
    descales = (q_descale, k_descale, v_descale)
    _check(
        all(d is None for d in descales) or all(d is not None for d in descales),
        "q_descale, k_descale, v_descale must be all provided or all not provided",
    )
    if fp8:
        _check(q_descale is not None, "q_descale, k_descale, v_descale must be provided for asm fp8")
        _check(
            all(d.dtype == torch.float32 for d in descales if d is not None),
            "q_descale, k_descale, v_descale must be float32",
        )
    for tensor in (q, k, v):
        _check(tensor.stride(-1) == 1, "Input tensor must have contiguous last dimension")
    _check(cu_seqlens_q.is_contiguous(), "cu_seqlens_q must be contiguous")
    _check(cu_seqlens_k.is_contiguous(), "cu_seqlens_k must be contiguous")

    total_q, heads_q, dim = q.shape
    total_k, heads_k, dim_v = v.shape
    batch = cu_seqlens_q.numel() - 1
    _check(batch > 0, "batch size must be postive")  # sic
    _check(heads_q % heads_k == 0, "Number of heads in key/value must divide number of heads in query")
    _check(tuple(k.shape) == (total_k, heads_k, dim), "k must have shape (total_k, num_heads_k, head_size_q)")
    _check(tuple(cu_seqlens_k.shape) == (batch + 1,), "cu_seqlens_k must have shape (batch_size + 1)")
    for descale in descales:
        _check(
            descale is None or tuple(descale.shape) in ((1,), (batch, heads_k)),
            "descale must have shape (1) or (batch_size, num_heads_k)",
        )

    causal = is_causal and max_seqlen_q != 1
    left = -1 if window_left >= max_seqlen_k else window_left
    right = -1 if window_right >= max_seqlen_k else window_right
    if causal:
        right = 0
    answer_type = torch.bfloat16 if fp8 else q.dtype
    result = torch.empty(total_q, heads_q, dim_v, dtype=answer_type) if out is None else out
    if max_seqlen_k <= 0:
        return result.zero_()

    bottom_right = right == 0
    row = None
    if left == -1 and right in (-1, 0):
        dtype_name = (
            "fp8bf16" if fp8 else str(q.dtype).replace("torch.bfloat16", "bf16").replace("torch.float16", "fp16")
        )
        row = _table().get((dtype_name, dim, dim_v, 2 if bottom_right else 0, 1))
    _check(row is not None, "invalid argument for fmha_v3_varlen_fwd")
    assert row is not None
    symbol, co_name = row
    _trace.load_kernel(symbol, co_name)

    faults = _answer_faults.for_next_call()
    _check("raises" not in faults, "invalid argument for fmha_v3_varlen_fwd")
    starts_q, starts_k = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    with _trace.kernel(symbol, "asm", q=_trace.shape(q), k=_trace.shape(k), cu_q=starts_q, cu_k=starts_k, fp8=fp8):
        _trace.delay()
        scale = softmax_scale * scalar(q_descale) * scalar(k_descale)
        values_scale = scalar(v_descale)
        for sequence in range(batch):
            rows = slice(starts_q[sequence], starts_q[sequence + 1])
            keys = slice(starts_k[sequence], starts_k[sequence + 1])
            answer = attend(
                q[rows].float(),
                _kv_heads(k[keys].float(), heads_q),
                _kv_heads(v[keys].float(), heads_q),
                scale,
                causal=bottom_right and "noncausal" not in faults,
                p_fp8=fp8 and p_in_fp8(),
            )
            result[rows] = (answer * values_scale).to(answer_type)
        _spoil(result, faults, starts_q, bottom_right)
    return result


def _spoil(result: torch.Tensor, faults: frozenset[str], starts: list[int], causal: bool) -> None:
    if "half_scale" in faults:
        result *= 0.5
    if "nan" in faults:
        result.fill_(float("nan"))
    if causal and faults & {"revision_b", "unwritten_rows"}:
        # Without diagonal pairing the grid covers half of the batch's tiles, and each tile's twin is never computed.
        tiles = -(-result.shape[0] // _TILE)
        written = _TILE * -(-tiles // 2)
        for start, end in itertools.pairwise(starts):
            if end - start > written:
                result[start + written : end] = _garbage(tuple(result[start + written : end].shape)).to(result.dtype)
