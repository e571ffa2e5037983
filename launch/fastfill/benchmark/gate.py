"""The accuracy gate: from paired answers to pass, fail or inconclusive, with a margin that was stated beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from fastfill.benchmark import stats
from fastfill.benchmark.stats import ALPHA, Paired

Name = Literal["pass", "fail", "inconclusive"]
LEAST_SHARE = 0.2
"""An arm that gets less than this right has little to lose: no loss could be seen."""


class Judged(NamedTuple):
    """What a comparison of two arms amounts to."""

    name: Name
    why: str
    paired: Paired


def judge(reference: Sequence[bool], candidate: Sequence[bool], *, margin: float) -> Judged:
    """Is the candidate worse than the reference by less than the margin?

    Args:
        reference, candidate: Whether each question was answered right, in the same order.
        margin: The drop, as a share of the questions, that would not be accepted.

    Raises:
        ValueError: Not the same questions.
    """
    found = stats.mcnemar(reference, candidate)
    drop = (
        f"{found.right_b} of {found.n} right, {found.right_a} on the reference; drop {0.0 - 100 * found.difference:.1f}"
    )
    bound = f"at most {-100 * found.low:.1f} points with 97.5 % confidence"
    if found.low <= -margin and found.p < ALPHA and found.difference < 0:
        return Judged("fail", f"{drop} points, McNemar p = {found.p:.2g}", found)
    if found.right_a < LEAST_SHARE * found.n:
        return Judged("inconclusive", f"{drop} points: too few right answers for a loss to show", found)
    if found.visible > margin:
        why = f"{found.n} questions show drops from {100 * found.visible:.1f} points on, the margin is {100 * margin:g}"
        return Judged("inconclusive", f"{drop} points; too few questions: {why}", found)
    if found.low <= -margin:
        return Judged("inconclusive", f"{drop} points, {bound}: not within the margin of {100 * margin:g}", found)
    return Judged("pass", f"{drop} points, {bound}: within the margin of {100 * margin:g}", found)


def together(names: Sequence[Name]) -> Name:
    """The gate's verdict over all comparisons; none at all shows nothing."""
    if "fail" in names:
        return "fail"
    return "inconclusive" if "inconclusive" in names or not names else "pass"
