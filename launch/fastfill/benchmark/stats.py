"""Paired statistics: one number a block, a t interval over blocks, Holm over cells, McNemar over questions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

CONFIDENCE = 0.95
ALPHA = 0.05


class Estimate(NamedTuple):
    """A mean with its interval.

    Attributes:
        value: The mean.
        low, high: The interval of ``CONFIDENCE``.
        p: Two-sided, that the true mean is 0.
        n: How many values.
    """

    value: float
    low: float
    high: float
    p: float
    n: int


def mean(values: Sequence[float], confidence: float = CONFIDENCE) -> Estimate | None:
    """The mean of independent values with Student's interval; None below two values, which have no spread."""
    from scipy import special

    n = len(values)
    if n < 2:
        return None
    centre = math.fsum(values) / n
    error = math.sqrt(math.fsum((value - centre) ** 2 for value in values) / (n - 1) / n)
    if error == 0.0:
        return Estimate(centre, centre, centre, 0.0 if centre else 1.0, n)
    half = float(special.stdtrit(n - 1, 0.5 + confidence / 2)) * error
    p = 2.0 * float(special.stdtr(n - 1, -abs(centre) / error))
    return Estimate(centre, centre - half, centre + half, p, n)


def log_ratio(left: Sequence[float], right: Sequence[float]) -> float:
    """ln(right / left) of one block's runs, both sides by their geometric mean.

    Raises:
        ValueError: A value is not above 0.
    """
    return math.fsum(map(math.log, right)) / len(right) - math.fsum(map(math.log, left)) / len(left)


def difference(left: Sequence[float], right: Sequence[float]) -> float:
    """right - left of one block's runs, both sides by their mean, in the unit of the values."""
    return math.fsum(right) / len(right) - math.fsum(left) / len(left)


def as_ratio(estimate: Estimate) -> Estimate:
    """An estimate of a log ratio as one of the ratio."""
    return Estimate(math.exp(estimate.value), math.exp(estimate.low), math.exp(estimate.high), estimate.p, estimate.n)


def holm(values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment of p values, in the order given."""
    order = sorted(range(len(values)), key=lambda index: values[index])
    adjusted = [0.0] * len(values)
    worst = 0.0
    for rank, index in enumerate(order):
        worst = max(worst, min(1.0, (len(values) - rank) * values[index]))
        adjusted[index] = worst
    return adjusted


class Paired(NamedTuple):
    """Two arms on the same questions.

    Attributes:
        only_a, only_b: Questions that only this arm has right.
        difference: Share right in B minus share right in A.
        low: The lower end of its one-sided interval of 97.5 %.
        p: McNemar's exact test, two-sided: that neither arm is better.
        visible: The smallest drop that this many questions would show with 80 % power.
    """

    n: int
    right_a: int
    right_b: int
    only_a: int
    only_b: int
    difference: float
    low: float
    p: float
    visible: float


def mcnemar(a: Sequence[bool], b: Sequence[bool]) -> Paired:
    """Compare two arms question by question.

    The interval is Agresti and Min's (2005): Wald's after half a pair is added to each discordant cell, which stays
    sound where few pairs, or none, are discordant.

    Raises:
        ValueError: No questions, or not the same ones.
    """
    from scipy import stats

    if len(a) != len(b) or not a:
        raise ValueError("the arms were not asked the same questions")
    n = len(a)
    only_a = sum(left and not right for left, right in zip(a, b, strict=True))
    only_b = sum(right and not left for left, right in zip(a, b, strict=True))
    discordant = only_a + only_b
    p = float(stats.binomtest(only_b, discordant, 0.5).pvalue) if discordant else 1.0
    total, lost, won = n + 2, only_a + 0.5, only_b + 0.5
    error = math.sqrt(lost + won - (won - lost) ** 2 / total) / total
    z = float(stats.norm.ppf(0.975))
    share = sum(a) / n
    return Paired(
        n, sum(a), sum(b), only_a, only_b, (only_b - only_a) / n, (won - lost) / total - z * error, p, visible(share, n)
    )


def visible(share: float, n: int, power: float = 0.8) -> float:
    """The smallest difference of two shares near ``share`` that n questions an arm show, at 5 % and this power.

    The arms are taken as independent, which is the worst case of pairs that agree more often than by chance. A share
    of 0 or 1 has no spread to reckon with: one answer the other way is assumed.
    """
    from scipy import stats

    inside = min(max(share, 1 / (n + 1)), n / (n + 1))
    z = float(stats.norm.ppf(1 - ALPHA / 2) + stats.norm.ppf(power))
    return z * math.sqrt(2 * inside * (1 - inside) / n)
