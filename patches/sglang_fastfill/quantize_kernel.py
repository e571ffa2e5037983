"""The one-pass quantiser: q, k and v read once through their strides, written once as contiguous fp8.

One launch for all three. Upstream's sequence (``contiguous``, ``to``, three times) moves 7 bytes an element where this
moves 3, and turns overflow into NaN. Imported only where there is a GPU.
"""

# The parameters of a Triton kernel are pointers and numbers of Triton's, not Python's types.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, misc"

from __future__ import annotations

import torch
import triton
import triton.language as tl

COLUMNS: tl.constexpr = tl.constexpr(256)
"""Elements of one head: the width of a program's tile."""


@triton.jit
def _tile(x_ptr, y_ptr, stride, rows, width, column, row_block, scale_ptr, count_ptr, SCALED: tl.constexpr,
          COUNT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # fmt: skip
    row = row_block * ROWS + tl.arange(0, ROWS)
    inside = (row < rows)[:, None]
    within = column * COLUMNS + tl.arange(0, COLUMNS)
    x = tl.load(x_ptr + row.to(tl.int64)[:, None] * stride + within[None, :], mask=inside, other=0.0).to(tl.float32)
    if SCALED:
        # Rounded to nearest, as SGLang's KV write divides: the bytes must be the same.
        x = tl.math.div_rn(x, tl.zeros_like(x) + tl.load(scale_ptr).to(tl.float32))
    if COUNT:
        # NaN fails both comparisons and is counted.
        beyond = tl.sum(tl.where((x <= 448.0) & (x >= -448.0), 0, 1).to(tl.int32))
        if beyond > 0:
            tl.atomic_add(count_ptr, beyond.to(tl.int64))
    x = tl.clamp(x, -448.0, 448.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(y_ptr + row.to(tl.int64)[:, None] * width + within[None, :], x.to(tl.float8e4nv), mask=inside)


@triton.jit
def _quantize(q_ptr, k_ptr, v_ptr, q8_ptr, k8_ptr, v8_ptr, k_scale_ptr, v_scale_ptr, count_ptr,
              q_stride, k_stride, v_stride, rows, Q_HEADS: tl.constexpr, KV_HEADS: tl.constexpr, ROWS: tl.constexpr,
              COLUMNS: tl.constexpr):  # fmt: skip
    program = tl.program_id(0)
    heads = Q_HEADS + 2 * KV_HEADS
    row_block = program // heads
    head = program % heads
    if head < Q_HEADS:
        _tile(q_ptr, q8_ptr, q_stride, rows, Q_HEADS * COLUMNS, head, row_block, k_scale_ptr, count_ptr,
              False, False, ROWS, COLUMNS)  # fmt: skip
    elif head < Q_HEADS + KV_HEADS:
        _tile(k_ptr, k8_ptr, k_stride, rows, KV_HEADS * COLUMNS, head - Q_HEADS, row_block, k_scale_ptr, count_ptr,
              True, True, ROWS, COLUMNS)  # fmt: skip
    else:
        _tile(v_ptr, v8_ptr, v_stride, rows, KV_HEADS * COLUMNS, head - Q_HEADS - KV_HEADS, row_block, v_scale_ptr,
              count_ptr, True, True, ROWS, COLUMNS)  # fmt: skip


def shape(rows: int) -> tuple[int, int]:
    """Rows of one program's tile and its warps, by the number of tokens.

    Few tokens want many small programs; many want tiles that keep enough loads in flight.
    """
    if rows <= 64:
        return 1, 1
    if rows <= 2048:
        return 4, 2
    return 16, 4


def quantize_qkv(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    k_scale: torch.Tensor,
    v_scale: torch.Tensor,
    count: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Quantise to fp8, saturating: q at unit scale, k and v divided by theirs.

    Args:
        q: (tokens, q heads x 256), bf16, fp16 or fp32; rows may be strided, each row is contiguous.
        k: (tokens, kv heads x 256), likewise.
        v: (tokens, kv heads x 256), likewise.
        k_scale: One fp32 element on the device.
        v_scale: One fp32 element on the device.
        count: (1,) int64 on the device; elements of k and v without a finite fp8 value are added to it.

    Returns:
        q, k, v as float8_e4m3fn, contiguous, of the shapes given.
    """
    rows, q_width = q.shape
    kv_width = k.shape[1]
    # One allocation for the three: each costs the host as much as the launch's argument list.
    flat = torch.empty(rows * (q_width + 2 * kv_width), dtype=torch.float8_e4m3fn, device=q.device)
    q8, k8, v8 = flat.split((rows * q_width, rows * kv_width, rows * kv_width))
    q8, k8, v8 = q8.view(rows, q_width), k8.view(rows, kv_width), v8.view(rows, kv_width)
    if rows == 0:
        return q8, k8, v8
    q_heads, kv_heads = q_width // COLUMNS.value, kv_width // COLUMNS.value
    tile, warps = shape(rows)
    grid = (triton.cdiv(rows, tile) * (q_heads + 2 * kv_heads),)
    _quantize[grid](
        q, k, v, q8, k8, v8, k_scale, v_scale, count, q.stride(0), k.stride(0), v.stride(0), rows,
        Q_HEADS=q_heads, KV_HEADS=kv_heads, ROWS=tile, COLUMNS=COLUMNS.value, num_warps=warps,
    )  # fmt: skip
    return q8, k8, v8
