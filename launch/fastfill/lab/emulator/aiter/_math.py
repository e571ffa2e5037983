"""Attention in fp32 torch: the arithmetic under every emulated kernel."""

from __future__ import annotations

import os

import torch
import torch.nn.functional as F

_ROWS = 512  # query rows at a time: bounds the score matrix to rows x keys x heads


def scalar(scale: torch.Tensor | float | None) -> float:
    """Element 0 of a scale: what the kernels read, whatever its shape; None is 1."""
    if scale is None:
        return 1.0
    return float(scale.reshape(-1)[0]) if isinstance(scale, torch.Tensor) else float(scale)


def _mask(rows: range, length_q: int, length_k: int, causal: bool, left: int, right: int) -> torch.Tensor | None:
    if not causal and left < 0 and right < 0:
        return None
    query = torch.arange(rows.start, rows.stop)[:, None] + (length_k - length_q)
    key = torch.arange(length_k)[None, :]
    keep = torch.ones(len(rows), length_k, dtype=torch.bool)
    if causal:
        keep &= key <= query
    elif right >= 0:
        keep &= key <= query + right
    if left >= 0:
        keep &= key >= query - left
    return keep


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float,
    *,
    causal: bool,
    left: int = -1,
    right: int = -1,
    softcap: float = 0.0,
    sink: torch.Tensor | None = None,
    p_fp8: bool = False,
) -> torch.Tensor:
    """Attention of one sequence.

    Args:
        q: fp32, shape (Lq, Hq, D).
        k: fp32, shape (Lk, Hk, D); Hk divides Hq.
        v: fp32, shape (Lk, Hk, Dv).
        scale: Multiplies q·k.
        causal: Aligned at the bottom right: the last query sees the last key.
        left: Keys before the query that are seen, -1 for all.
        right: Keys after the query that are seen, -1 for all; only without ``causal``.
        softcap: Caps the scores with tanh if positive.
        sink: One extra score a query head, shape (Hq,), that takes weight and gives nothing.
        p_fp8: Round the softmax weights, at most 1 before they are normalised, to fp8 e4m3.

    Returns:
        fp32, shape (Lq, Hq, Dv). A query that sees no key gets zeros.
    """
    length_q, heads_q, _ = q.shape
    length_k, heads_k, _ = k.shape
    if length_q == 0 or length_k == 0:
        return torch.zeros(length_q, heads_q, v.shape[-1])
    plain = softcap <= 0 and sink is None and not p_fp8 and left < 0 and (causal or right < 0)
    # torch's fused CPU kernel answers finite numbers for NaN input, which no GPU kernel does.
    plain = plain and bool(torch.isfinite(q.sum() + k.sum() + v.sum()))
    if plain and (not causal or length_q == length_k):
        out = F.scaled_dot_product_attention(
            q.transpose(0, 1)[None],
            k.transpose(0, 1)[None],
            v.transpose(0, 1)[None],
            is_causal=causal,
            scale=scale,
            enable_gqa=heads_q != heads_k,
        )
        return out[0].transpose(0, 1)
    keys = k.repeat_interleave(heads_q // heads_k, 1).permute(1, 2, 0)  # Hq, D, Lk
    values = v.repeat_interleave(heads_q // heads_k, 1).transpose(0, 1)  # Hq, Lk, Dv
    parts = []
    for start in range(0, length_q, _ROWS):
        rows = range(start, min(start + _ROWS, length_q))
        # Keys that the last of these rows does not see need no scores.
        seen = max(1, min(length_k, rows.stop + length_k - length_q)) if causal else length_k
        scores = torch.matmul(q[rows.start : rows.stop].transpose(0, 1), keys[..., :seen]) * scale
        if softcap > 0:
            scores = softcap * torch.tanh(scores / softcap)
        keep = _mask(rows, length_q, length_k, causal, left, right)
        if keep is not None:
            scores = scores.masked_fill(~keep[:, :seen], float("-inf"))
        top = scores.amax(-1, keepdim=True)
        if sink is not None:
            top = torch.maximum(top, sink.float()[:, None, None])
        top = top.masked_fill(top == float("-inf"), 0.0)
        weights = torch.exp(scores - top)
        total = weights.sum(-1, keepdim=True)
        if sink is not None:
            total = total + torch.exp(sink.float()[:, None, None] - top)
        if p_fp8:
            weights = weights.to(torch.float8_e4m3fn).float()
        parts.append(torch.matmul(weights, values[:, :seen]) / total.clamp_min(1e-30))
    return torch.cat(parts, 1).transpose(0, 1)


def p_in_fp8() -> bool:
    """Whether the softmax weights are rounded to fp8, as the assembly kernel does."""
    return os.environ.get("AITER_EMULATOR_P_FP8", "0") == "1"
