"""The statistics, on data whose truth is known: seeded, so that a test either holds or does not."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fastfill.benchmark import stats, verdict
from fastfill.benchmark.verdict import Evidence

RUNS = 1000
BLOCKS = 8


def block(random: np.random.Generator, effect: float, heavy: bool) -> float:
    """ln(B/A) of an A B B A block: server drift, a level of the block, and the spread of each run."""
    level, drift = random.normal(5.0, 0.3), random.normal(0.0, 0.05)
    spread = random.standard_t(4, 4) * 0.03 if heavy else random.normal(0.0, 0.03, 4)
    times = np.exp(level + drift * np.arange(4) + spread + np.array([0.0, effect, effect, 0.0]))
    return stats.log_ratio([times[0], times[3]], [times[1], times[2]])


@pytest.mark.parametrize("heavy", [False, True])
@pytest.mark.parametrize("effect", [0.0, -0.2])
def test_the_interval_covers_the_truth_in_93_to_97_of_100(effect: float, heavy: bool) -> None:
    random = np.random.default_rng(20261130)
    covered = 0
    for _ in range(RUNS):
        found = stats.mean([block(random, effect, heavy) for _ in range(BLOCKS)])
        assert found is not None
        covered += found.low <= effect <= found.high
    assert 0.93 <= covered / RUNS <= 0.97, covered


@pytest.mark.parametrize("cells", [1, 8])
@pytest.mark.parametrize("noise", [0, BLOCKS // 2])
def test_false_verdicts_under_a_a_are_at_most_5_of_100(cells: int, noise: int) -> None:
    random = np.random.default_rng(1)
    wrong = 0
    for _ in range(RUNS):
        evidence = [
            Evidence(
                [block(random, 0.0, False) for _ in range(BLOCKS)], [block(random, 0.0, False) for _ in range(noise)]
            )
            for _ in range(cells)
        ]
        wrong += any(one.name in ("faster", "slower") for one in verdict.judge(evidence, lower_is_better=True))
    # The chance of a false verdict among all cells of one benchmark, not in each: that is what Holm keeps.
    assert wrong / RUNS <= 0.05, wrong


def test_a_real_difference_is_found() -> None:
    random = np.random.default_rng(3)
    found = 0
    for _ in range(200):
        evidence = [Evidence([block(random, effect, False) for _ in range(BLOCKS)], ()) for effect in (-0.2, 0.0)]
        found += verdict.judge(evidence, lower_is_better=True)[0].name == "faster"
    assert found >= 195


def test_direction_follows_the_metric() -> None:
    cell = Evidence([0.1, 0.11, 0.12, 0.1], [])
    assert verdict.judge([cell], lower_is_better=True)[0].name == "slower"
    assert verdict.judge([cell], lower_is_better=False)[0].name == "faster"
    assert verdict.judge([cell], lower_is_better=False)[0].ratio is not None


def test_no_larger_than_the_noise_is_no_difference() -> None:
    cell = Evidence([0.010, 0.011, 0.012, 0.010], [0.05, -0.01, 0.02])
    found = verdict.judge([cell], lower_is_better=True)[0]
    assert (found.name, "itself" in found.why) == ("no difference shown", True)


def test_an_arm_that_differs_from_itself_voids_the_cell() -> None:
    cell = Evidence([0.3, 0.31, 0.32], [0.2, 0.201, 0.202, 0.2])
    found = verdict.judge([cell], lower_is_better=True)[0]
    assert found.name == "void"
    assert "differs from itself" in found.why


def test_void_cells_say_why_and_weigh_nothing_in_holm() -> None:
    good = Evidence([0.1, 0.11, 0.12, 0.13], [])
    alone = verdict.judge([good], lower_is_better=True)[0]
    voided = verdict.judge([good, Evidence([], [], ["B did not fire", "B did not fire"])], lower_is_better=True)
    assert voided[0].adjusted_p == alone.adjusted_p
    assert (voided[1].name, voided[1].why, voided[1].adjusted_p) == ("void", "B did not fire", None)


def test_too_few_blocks_are_void() -> None:
    assert verdict.judge([Evidence([0.1, 0.1], [])], lower_is_better=True)[0].name == "void"


def test_holm_is_the_textbook() -> None:
    assert stats.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert stats.holm([]) == []


def test_an_even_drift_falls_out_of_a_block() -> None:
    drift = [math.exp(0.1 * position) for position in range(4)]
    assert stats.log_ratio([drift[0], drift[3]], [drift[1], drift[2]]) == pytest.approx(0.0)


def test_the_interval_is_scipys() -> None:
    from scipy import stats as scipy_stats

    values = [0.3, 0.1, -0.2, 0.5, 0.25]
    theirs = scipy_stats.ttest_1samp(values, 0.0)
    ours = stats.mean(values)
    assert ours is not None
    assert (ours.p, ours.low, ours.high) == pytest.approx((theirs.pvalue, *theirs.confidence_interval()))


@pytest.mark.parametrize(("share", "n", "points"), [(0.977, 1319, 1.6), (0.977, 200, 4.2)])
def test_what_a_number_of_questions_shows(share: float, n: int, points: float) -> None:
    assert 100 * stats.visible(share, n) == pytest.approx(points, abs=0.05)


def test_mcnemar_counts_discordant_pairs() -> None:
    a = [True] * 90 + [False] * 10
    b = [True] * 84 + [False] * 6 + [True] * 2 + [False] * 8
    found = stats.mcnemar(a, b)
    assert (found.only_a, found.only_b, found.right_a, found.right_b) == (6, 2, 90, 86)
    assert found.difference == pytest.approx(-0.04)
    assert found.p == pytest.approx(2 * sum(math.comb(8, k) for k in range(3)) / 2**8)
    assert -0.12 < found.low < found.difference


def test_the_drop_s_bound_holds_in_97_of_100() -> None:
    random = np.random.default_rng(5)
    held = 0
    for _ in range(2000):
        right = random.random(400) < 0.95
        lost, won = random.random(400) < 0.03, random.random(400) < 0.2
        other = np.where(right, ~lost, won)
        truth = 0.05 * 0.2 - 0.95 * 0.03
        held += stats.mcnemar(list(map(bool, right)), list(map(bool, other))).low <= truth
    assert held / 2000 >= 0.965, held


def test_arms_without_the_same_questions_are_refused() -> None:
    with pytest.raises(ValueError, match="same questions"):
        stats.mcnemar([True], [True, False])
