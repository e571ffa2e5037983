"""Casts to fp8 e4m3 with the right scale, saturating.

What ``tensor.to(torch.float8_e4m3fn)`` makes of |x| >= 465 depends on torch: NaN in the releases that ROCm images carry
and on CUDA, 448 in the CPU build of 2.13.0. Every cast here clamps to the largest finite value first. NaN stays NaN.
"""

from __future__ import annotations

import torch

FP8 = torch.float8_e4m3fn
FP8_MAX = 448.0


def quantize(x: torch.Tensor, heads: int, head_dim: int, scale: torch.Tensor | None = None) -> torch.Tensor:
    """Quantise to fp8: ``x / scale``, saturated.

    Args:
        x: (tokens, heads x head_dim) or (tokens, heads, head_dim), bf16, fp16 or fp32; any strides.
        heads: Heads on this rank.
        head_dim: Elements per head.
        scale: One fp32 element, 0-D or (1,), on x's device; None for a scale of 1.

    Returns:
        (tokens, heads, head_dim), float8_e4m3fn, contiguous.
    """
    shaped = x.reshape(-1, heads, head_dim)
    if scale is not None:
        # fp32, as SGLang's KV write divides: a bf16 quotient would round twice.
        shaped = shaped.float() / scale.float()
    return shaped.clamp(-FP8_MAX, FP8_MAX).to(FP8).contiguous()


def saturate(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Clamp so that ``x / scale`` has a finite fp8 value: |x| <= 448 x scale.

    Args:
        x: k or v as the KV write gets it, any shape, bf16, fp16 or fp32.
        scale: One fp32 element, 0-D or (1,), on x's device.

    Returns:
        A new tensor of x's shape and dtype. Where no element was beyond the limit it equals x.
    """
    limit = (scale.float() * FP8_MAX).to(x.dtype).reshape(())
    return torch.clamp(x, min=-limit, max=limit)


def descale(scale: torch.Tensor | None, unit: torch.Tensor) -> torch.Tensor:
    """The (1,) fp32 tensor that aiter's dispatch asks for; a 0-D one misses its gate and ends in CK's error.

    Args:
        scale: The layer's scale: None, 0-D, (1,), fp32.
        unit: (1,) fp32 tensor holding 1.0, for layers without a scale.
    """
    return unit if scale is None else scale.reshape(1)


def quantize_qkv(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    q_heads: int,
    kv_heads: int,
    k_scale: torch.Tensor,
    v_scale: torch.Tensor,
    count: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Quantise q at unit scale, k and v at theirs, saturating; one pass over memory on a GPU.

    Args:
        q: (tokens, q heads x 256) or (tokens, q heads, 256), the model's dtype; rows may be strided.
        k: (tokens, kv heads, 256), likewise.
        v: (tokens, kv heads, 256), likewise.
        q_heads: q heads on this rank.
        kv_heads: kv heads on this rank.
        k_scale: One fp32 element on the device, 0-D or (1,).
        v_scale: One fp32 element on the device, 0-D or (1,).
        count: (1,) int64 on the device; elements of k and v without a finite fp8 value are added to it.

    Returns:
        q, k, v as (tokens, heads, 256), float8_e4m3fn, contiguous.
    """
    if q.is_cuda:
        from sglang_fastfill import quantize_kernel

        tokens = q.shape[0]
        flat = (_rows(q, q_heads), _rows(k, kv_heads), _rows(v, kv_heads))
        q8, k8, v8 = quantize_kernel.quantize_qkv(*flat, k_scale, v_scale, count)
        return q8.view(tokens, q_heads, -1), k8.view(tokens, kv_heads, -1), v8.view(tokens, kv_heads, -1)
    for x, scale in ((k, k_scale), (v, v_scale)):
        count += torch.count_nonzero(~((x.float() / scale.float()).abs() <= FP8_MAX))
    dim = k.shape[-1]
    return quantize(q, q_heads, dim), quantize(k, kv_heads, dim, k_scale), quantize(v, kv_heads, dim, v_scale)


def _rows(x: torch.Tensor, heads: int) -> torch.Tensor:
    """x as (tokens, heads x dim) with contiguous rows: a view wherever the strides allow one."""
    width = heads * (x.shape[-1] if x.dim() == 3 else x.shape[-1] // heads)
    if x.dim() == 3 and (x.stride(2) != 1 or (heads > 1 and x.stride(1) != x.shape[2])):
        x = x.contiguous()
    if x.dim() == 2 and x.stride(1) != 1:
        x = x.contiguous()
    return torch.as_strided(x, (x.shape[0], width), (x.stride(0), 1), x.storage_offset())
