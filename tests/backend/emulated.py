"""Packed batches for the emulated aiter, and a second opinion on attention written without it."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
from typing import Any

import torch

FP8 = torch.float8_e4m3fn
ONE = torch.ones(1)


def batch(lengths: list[int], heads_q: int, heads_k: int, dim: int, dtype: torch.dtype = FP8) -> dict[str, Any]:
    """Arguments of ``flash_attn_varlen_fp8_pertensor_func`` for prompts of these lengths."""
    generator = torch.Generator().manual_seed(sum(lengths))
    total = sum(lengths)
    q, k, v = (
        torch.randn(total, heads, dim, generator=generator).to(torch.bfloat16).to(dtype)
        for heads in (heads_q, heads_k, heads_k)
    )
    starts = torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)
    return {
        "q": q,
        "k": k,
        "v": v,
        "q_descale": ONE,
        "k_descale": ONE,
        "v_descale": ONE,
        "cu_seqlens_q": starts,
        "cu_seqlens_k": starts,
        "max_seqlen_q": max(lengths),
        "max_seqlen_k": max(lengths),
        "causal": True,
    }


def truth(arguments: dict[str, Any], *, causal: bool = True, scale: float = 1.0) -> torch.Tensor:
    """fp32 attention over the dequantised input, a head and a row at a time.

    Args:
        arguments: Of :func:`batch`.
        causal: Whether key j is seen by query i of the same sequence only if j <= i.
        scale: Multiplies the scores, for descales.
    """
    q, k, v = (arguments[name].float() for name in "qkv")
    ratio = q.shape[1] // k.shape[1]
    starts = arguments["cu_seqlens_q"].tolist()
    out = torch.empty(q.shape[0], q.shape[1], v.shape[-1])
    for first, end in itertools.pairwise(starts):
        for head in range(q.shape[1]):
            scores = q[first:end, head] @ k[first:end, head // ratio].T * (scale / math.sqrt(q.shape[-1]))
            if causal:
                scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -math.inf)
            out[first:end, head] = torch.softmax(scores, -1) @ v[first:end, head // ratio]
    return out


def error(answer: torch.Tensor, expected: torch.Tensor) -> float:
    """Relative error in the 2-norm."""
    return float((answer.float() - expected).norm() / expected.norm())


def run_python(code: str, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter of this environment, for what is decided when aiter is imported."""
    return subprocess.run(
        [sys.executable, "-c", code, *words], env={**os.environ, **env}, capture_output=True, text=True, check=False
    )
