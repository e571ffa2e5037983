"""SGLang's fp8 quantiser in torch: on a CPU the name that its own one calls does not exist."""

from __future__ import annotations

import torch

FP8 = torch.float8_e4m3fn
LARGEST = 448.0


def scaled_fp8_quant(
    input: torch.Tensor,
    scale: torch.Tensor | None = None,
    num_token_padding: int | None = None,
    use_per_token_if_dynamic: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """What SGLang's version for HIP does (kernels/ops/quantization/fp8_kernel.py): it saturates.

    Args:
        input: Shape (tokens, features).
        scale: What the input is divided by, one element; None computes one from the largest magnitude.
        num_token_padding: At least so many rows in the output; the added ones hold anything.
        use_per_token_if_dynamic: A computed scale for each token instead of one for all.

    Returns:
        The input in fp8 e4m3, and the scale, fp32.
    """
    assert input.ndim == 2, f"Expected 2D input tensor, got {input.ndim}D"
    if scale is None:
        largest = input.abs().amax(1, keepdim=True) if use_per_token_if_dynamic else input.abs().max().reshape(1)
        scale = largest.float().clamp_min(1e-12) / LARGEST
    else:
        assert scale.numel() == 1, f"Expected scalar scale, got numel={scale.numel()}"
    rows = max(num_token_padding or 0, input.shape[0])
    output = torch.zeros(rows, input.shape[1], dtype=FP8)
    output[: input.shape[0]] = (input / scale).clamp(-LARGEST, LARGEST).to(FP8)
    return output, scale
