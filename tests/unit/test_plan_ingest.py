"""Requests that are sent at once and reach the scheduler one after another."""

from __future__ import annotations

import pytest

from fastfill.planning.coverage import gate
from fastfill.planning.ingest import Reached, spacing
from fastfill.planning.request import Batch, Request
from fastfill.planning.rules import Settings, rules
from fastfill.planning.simulate import Simulation
from fastfill.planning.source import NEVER, OneByOne, Open
from fastfill.planning.times import Times

OWN, TOKEN = 0.02, 0.0001


def burst(gap: float, requests: int = 32, tokens: int = 16) -> list[Reached]:
    """The passes of a scheduler that takes whatever is there."""
    arrivals = [number * gap for number in range(requests)]
    passes: list[Reached] = []
    now, taken = 5.0, 0
    while taken < requests:
        now = max(now, 5.0 + arrivals[taken])
        there = sum(5.0 + one <= now for one in arrivals) - taken
        now += OWN + TOKEN * tokens * there
        passes.append(Reached(now, there, tokens * there))
        taken += there
    return passes


@pytest.mark.parametrize("gap", [0.001, 0.003, 0.01, 0.05])
def test_the_gap_is_found_from_the_passes(gap: float) -> None:
    assert spacing([burst(gap), [], burst(gap)], OWN, TOKEN) == pytest.approx(gap, rel=0.2)


def test_a_burst_that_is_there_before_the_first_pass_is_over_tells_the_most_that_it_can_be() -> None:
    assert [one.requests for one in burst(1e-5)] == [1, 31]
    assert spacing([burst(1e-5)], OWN, TOKEN) == pytest.approx((OWN + 16 * TOKEN) / 31.5)


def test_one_pass_tells_nothing() -> None:
    assert spacing([burst(0.0), []], OWN, TOKEN) is None


def test_the_first_of_a_burst_is_prefilled_alone() -> None:
    def batches(ingest: float) -> list[list[int]]:
        seen: list[list[int]] = []

        def watch(began: float, seconds: float, batch: Batch, reason: str) -> None:
            seen.append([member[0].number for member in batch.members])

        times = Times(pass_=0.02, token=0, pair_fast=0, pair_slow=0, decode=0.01, row=0, cached=0, ingest=ingest)
        found = rules("0.5.16", gfx950=False)
        settings = Settings(1024, 16384, max_running=16, kv_tokens=32768)
        simulation = Simulation(found, settings, times, gate(found, path=True, q_heads=4), blocking=True, watch=watch)
        simulation.run(Open(Request(n, 1.0, 32, 1, ignore_eos=True) for n in range(6)))
        return seen

    assert batches(0.0) == [[0, 1, 2, 3, 4, 5]]
    assert batches(0.005) == [[0], [1, 2, 3, 4], [5]]


def test_one_that_comes_later_does_not_wait() -> None:
    source = OneByOne(Open(Request(n, at, 8, 1) for n, at in enumerate((1.0, 1.0, 1.01, 2.0))), 0.1)
    dues = []
    while source.due() != NEVER:
        dues.append(source.due())
        source.take()
    assert dues == pytest.approx([1.0, 1.1, 1.2, 2.0])
