"""Runs the kernel on this device against an fp32 reference, on shapes chosen to catch what has gone wrong before.

The quantiser and the call are those of the fast path; only SGLang is left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from sglang_fastfill.quantize import FP8, FP8_MAX, quantize_qkv

TOLERANCE = 0.03
"""Relative error: the kernel rounds the softmax weights to fp8."""
DIM = 256


class Case(NamedTuple):
    """One call of the kernel.

    Attributes:
        name: What it is there to catch.
        lengths: Tokens of each sequence in the batch.
        q_heads: q heads.
        kv_heads: kv heads.
        k_scale: k's scale.
        v_scale: v's scale.
        spike: Value of a few elements of q, k and v, 0.0 for none.
    """

    name: str
    lengths: tuple[int, ...]
    q_heads: int = 8
    kv_heads: int = 1
    k_scale: float = 1.0
    v_scale: float = 1.0
    spike: float = 0.0


CASES: tuple[Case, ...] = (
    Case("one sequence of 512", (512,)),
    Case("one sequence of 1300", (1300,)),
    Case("uneven sequences", (1, 17, 255, 256, 257, 600)),
    Case("many short sequences", (3, 5, 8, 13, 21, 34, 55, 89)),
    Case("length 1", (1,)),
    *(Case(f"length {n}", (n,)) for n in (255, 256, 257, 511, 513)),
    *(Case(f"head ratio {ratio}", (300,), q_heads=2 * ratio, kv_heads=2) for ratio in (1, 2, 4, 8, 16)),
    Case("scales below 1", (300,), k_scale=0.5, v_scale=0.037),
    Case("scales above 1", (300,), k_scale=2.0, v_scale=4.0),
    Case("values that overflow", (300,), spike=1e4),
)


class Result(NamedTuple):
    """What one case showed.

    Attributes:
        name: The case.
        ok: Whether the kernel answered right.
        error: Relative error over all rows, infinite when it raised or answered NaN.
        kind: The kind of fault, empty when ok.
        detail: What was seen, for people.
    """

    name: str
    ok: bool
    error: float
    kind: str
    detail: str


def inputs(case: Case, device: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """q, k, v in bf16 as views into one projection, (tokens, heads x 256) and twice (tokens, kv heads, 256)."""
    tokens = sum(case.lengths)
    sizes = [case.q_heads * DIM, case.kv_heads * DIM, case.kv_heads * DIM]
    generator = torch.Generator().manual_seed(tokens * 31 + case.q_heads)
    fused = torch.randn(tokens, sum(sizes), generator=generator).to(torch.bfloat16)
    if case.spike:
        fused[::7, ::97] = case.spike
        fused[3::11, 5::89] = -case.spike
    q, k, v = fused.to(device).split(sizes, dim=1)
    return q, k.view(tokens, case.kv_heads, DIM), v.view(tokens, case.kv_heads, DIM)


def reference(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: Sequence[int], *, causal: bool = True
) -> torch.Tensor:
    """fp32 attention of packed sequences, (tokens, heads, 256); k and v are repeated to q's heads."""
    group = q.shape[1] // k.shape[1]
    parts = []
    for start, count in zip(_starts(lengths), lengths, strict=True):
        rows = slice(start, start + count)
        keys, values = (x[rows].repeat_interleave(group, 1) for x in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q[rows], keys) / math.sqrt(DIM)
        if causal:
            above = torch.ones(count, count, dtype=torch.bool, device=q.device).triu(1)
            scores = scores.masked_fill(above, -math.inf)
        parts.append(torch.einsum("hqk,khd->qhd", scores.softmax(-1), values))
    return torch.cat(parts)


def _starts(lengths: Sequence[int]) -> list[int]:
    starts, at = [], 0
    for count in lengths:
        starts.append(at)
        at += count
    return starts


def _poison(tokens: int, heads: int, device: str) -> None:
    """Leave NaN where the allocator will put the output, so that rows nobody writes are seen."""
    torch.full((tokens, heads, DIM), math.nan, dtype=torch.bfloat16, device=device)


def run_case(case: Case, aiter: Any, device: str) -> Result:
    """Run the kernel once and judge its answer."""
    q, k, v = inputs(case, device)
    k_scale, v_scale = (torch.tensor([s], device=device) for s in (case.k_scale, case.v_scale))
    one, count = torch.ones(1, device=device), torch.zeros(1, dtype=torch.int64, device=device)
    q8, k8, v8 = quantize_qkv(q, k, v, case.q_heads, case.kv_heads, k_scale, v_scale, count)
    offsets = torch.tensor([*_starts(case.lengths), sum(case.lengths)], dtype=torch.int32, device=device)
    longest = max(case.lengths)
    _poison(sum(case.lengths), case.q_heads, device)
    try:
        out = aiter.flash_attn_varlen_fp8_pertensor_func(
            q8, k8, v8, one, k_scale, v_scale, offsets, offsets, longest, longest,
            softmax_scale=DIM**-0.5, causal=True,
        ).float()  # fmt: skip
    except Exception as error:
        return Result(case.name, False, math.inf, "raises", str(error))
    fp32 = q8.float(), k8.float() * case.k_scale, v8.float() * case.v_scale
    return judge(case, out, reference(*fp32, case.lengths), lambda: reference(*fp32, case.lengths, causal=False))


def _relative(got: torch.Tensor, want: torch.Tensor) -> float:
    return float((got - want).norm() / want.norm())


def judge(case: Case, out: torch.Tensor, want: torch.Tensor, non_causal: Any) -> Result:
    """Name what is wrong with an output.

    Args:
        case: The call.
        out: What the kernel answered, (tokens, heads, 256), fp32.
        want: What is right.
        non_causal: Makes the answer of a kernel that ignores the mask.
    """
    finite = torch.isfinite(out).all(dim=(1, 2)) if out.dim() == 3 else torch.isfinite(out)
    if not bool(finite.all()):
        bad = torch.nonzero(~finite).flatten()
        kind = "not finite" if len(bad) == len(out) or case.spike else "rows unwritten"
        return Result(case.name, False, math.inf, kind, f"{len(bad)} of {len(out)} rows, the first is {int(bad[0])}")
    error = _relative(out, want)
    if error <= TOLERANCE:
        return Result(case.name, True, error, "", "")
    wrong = (out - want).norm(dim=(1, 2)) > 0.2 * want.norm(dim=(1, 2))
    factor = float((out * want).sum() / (want * want).sum())
    if abs(factor) > 1e-3 and _relative(out, want * factor) <= TOLERANCE:
        kind, detail = "wrong by a scale", f"the answer is {factor:.3f} times the right one"
    elif _relative(out, non_causal()) <= TOLERANCE:
        kind, detail = "not causal", "the answer is that of attention without the mask"
    elif 0 < int(wrong.sum()) < len(out):
        first = int(torch.nonzero(wrong).flatten()[0])
        kind, detail = "rows unwritten", f"{int(wrong.sum())} of {len(out)} rows, the first is {first}"
    else:
        kind, detail = "wrong answer", f"relative error {error:.3f}"
    return Result(case.name, False, error, kind, detail)


def check_quantizer(device: str) -> Result:
    """On a GPU: the Triton quantiser against the saturating torch cast, byte by byte."""
    case = Case("quantiser, byte by byte", (777,), spike=1e4, k_scale=0.037, v_scale=2.0)
    q, k, v = inputs(case, device)
    k_scale, v_scale = (torch.tensor([s], device=device) for s in (case.k_scale, case.v_scale))
    count = torch.zeros(1, dtype=torch.int64, device=device)
    got = quantize_qkv(q, k, v, case.q_heads, case.kv_heads, k_scale, v_scale, count)
    different = 0
    for mine, x, scale in zip(got, (q, k, v), (None, k_scale, v_scale), strict=True):
        exact = x.float() if scale is None else x.float() / scale
        want = exact.clamp(-FP8_MAX, FP8_MAX).to(FP8).reshape(mine.shape)
        different += int((mine.view(torch.uint8) != want.view(torch.uint8)).sum())
    detail = f"{different} bytes differ" if different else ""
    return Result(case.name, not different, float(different), "quantiser" if different else "", detail)


def run(device: str) -> list[Result]:
    """Every case on this device, ``cuda`` or ``cpu``."""
    import aiter

    return [check_quantizer(device), *(run_case(case, aiter, device) for case in CASES)]
