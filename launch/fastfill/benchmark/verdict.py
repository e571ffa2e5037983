"""From the numbers of the blocks to one verdict a cell: faster, slower, no difference shown, void."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from fastfill.benchmark import stats
from fastfill.benchmark.stats import ALPHA, Estimate

Name = Literal["faster", "slower", "no difference shown", "void"]
FEWEST_BLOCKS = 3
NOISE_ALPHA = 0.01


class Evidence(NamedTuple):
    """What one cell has.

    Attributes:
        blocks: ln(B/A) of the primary metric, one number a block.
        noise: ln(A/A) of the blocks that compare arm A with itself.
        void: Why nothing may be concluded from this cell, each reason once; empty where nothing stands against it.
    """

    blocks: Sequence[float]
    noise: Sequence[float]
    void: Sequence[str] = ()


class Verdict(NamedTuple):
    """One cell's verdict.

    Attributes:
        why: One sentence.
        ratio: B over A, with its interval; None below two blocks.
        noise: A over A, likewise.
        adjusted_p: Holm's, over all cells that are not void; None where void.
    """

    name: Name
    why: str
    ratio: Estimate | None
    noise: Estimate | None
    adjusted_p: float | None


def judge(cells: Sequence[Evidence], *, lower_is_better: bool) -> list[Verdict]:
    """Judge all cells together, because one finds something by chance more easily among many.

    A cell differs where Holm's p is below ``ALPHA`` and the difference is larger than the one that arm A shows against
    itself.
    """
    estimates = [stats.mean(cell.blocks) for cell in cells]
    noises = [stats.mean(cell.noise) for cell in cells]
    voids = [_void(*one) for one in zip(cells, estimates, noises, strict=True)]
    tested = [index for index, why in enumerate(voids) if not why]
    adjusted = dict(zip(tested, stats.holm([_p(estimates[index]) for index in tested]), strict=True))
    return [
        _verdict(estimates[index], noises[index], voids[index], adjusted.get(index), lower_is_better)
        for index in range(len(cells))
    ]


def _p(estimate: Estimate | None) -> float:
    return 1.0 if estimate is None else estimate.p


def _void(cell: Evidence, estimate: Estimate | None, noise: Estimate | None) -> str:
    if cell.void:
        return "; ".join(dict.fromkeys(cell.void))
    if estimate is None or estimate.n < FEWEST_BLOCKS:
        return f"{len(cell.blocks)} block(s), and at least {FEWEST_BLOCKS} are needed"
    if noise is not None and noise.n >= FEWEST_BLOCKS and noise.p < NOISE_ALPHA:
        return f"arm A differs from itself (p = {noise.p:.4f}): something else than the arms changed"
    return ""


def _verdict(
    estimate: Estimate | None, noise: Estimate | None, void: str, p: float | None, lower_is_better: bool
) -> Verdict:
    ratio = None if estimate is None else stats.as_ratio(estimate)
    floor = None if noise is None else stats.as_ratio(noise)
    if void or estimate is None or ratio is None or p is None:
        return Verdict("void", void, ratio, floor, None)
    if p >= ALPHA:
        return Verdict("no difference shown", f"p = {p:.3f} after Holm", ratio, floor, p)
    if noise is not None and abs(estimate.value) <= abs(noise.value):
        return Verdict("no difference shown", "no larger than the difference of arm A from itself", ratio, floor, p)
    better = (estimate.value < 0) == lower_is_better
    change = f"B is at {100 * ratio.value:.1f} % of A"
    return Verdict("faster" if better else "slower", f"{change}, p = {p:.2g} after Holm", ratio, floor, p)
