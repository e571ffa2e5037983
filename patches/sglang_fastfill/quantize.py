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
