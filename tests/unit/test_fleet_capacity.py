"""How many servers may go, whose turn it is, and how a batch is judged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfill.errors import FastfillError
from fastfill.fleet import capacity


@pytest.mark.parametrize(
    ("healthy", "total", "share", "outage", "go"),
    [
        (200, 200, 0.85, False, 30),
        (188, 200, 0.85, False, 18),
        (170, 200, 0.85, False, 0),
        (20, 20, 0.85, False, 3),
        (4, 4, 0.85, False, 0),
        (4, 4, 0.75, False, 1),
        (1, 1, 0.0, False, 0),
        (1, 1, 0.85, True, 1),
        (2, 2, 0.0, False, 1),
        (0, 3, 0.85, False, 0),
    ],
)
def test_spare(healthy: int, total: int, share: float, outage: bool, go: int) -> None:
    assert capacity.spare(healthy, total, share, allow_outage=outage) == go


@given(st.integers(0, 300), st.integers(1, 300), st.floats(0, 1))
def test_capacity_never_falls_below_the_share(healthy: int, total: int, share: float) -> None:
    healthy = min(healthy, total)
    left = healthy - capacity.spare(healthy, total, share)
    assert left == healthy or (left >= share * total - 1e-6 and left >= 1)


def test_what_does_not_serve_costs_no_capacity() -> None:
    turns = capacity.turns({"a": False, "b": True, "c": True}, 3, 4, 0.5)
    assert (turns["go"], turns["wait"]) == (["a", "b"], ["c"])
    assert "at least 2 must" in turns["why"] and "fleet_min_capacity=0.25" in turns["why"]


def test_a_lone_server_is_told_how() -> None:
    turns = capacity.turns({"a": True}, 1, 1, 0.85)
    assert turns["wait"] == ["a"] and "fleet_allow_outage=true" in turns["why"]
    assert capacity.turns({"a": True}, 1, 1, 0.85, allow_outage=True)["go"] == ["a"]


def test_a_batch_is_judged_when_all_are_done() -> None:
    reports = {
        "a": {"outcome": "proven", "why": ""},
        "b": {"outcome": "returned", "why": "the proof says NOT_FIRED"},
        "c": {"outcome": "skipped", "why": "busy"},
    }
    judged = capacity.verdict(["a", "b", "c", "d"], reports)
    assert (judged["ok"], judged["failed"], judged["skipped"]) == (False, ["b", "d"], ["c"])
    assert judged["text"][0] == "b: returned: the proof says NOT_FIRED"
    assert judged["text"][2].startswith("d: unreachable")
    assert capacity.verdict(["a", "c"], reports)["ok"]


@pytest.mark.parametrize(
    ("given", "share"), [("85 %", 0.85), (0.85, 0.85), ("85", 0.85), ("100%", 1.0), (0, 0.0), ("0.5%", 0.005)]
)
def test_minimum(given: object, share: float) -> None:
    assert capacity.minimum(given) == pytest.approx(share)


@pytest.mark.parametrize("given", ["much", "-1", "130 %"])
def test_no_share(given: str) -> None:
    with pytest.raises(FastfillError, match="is no share"):
        capacity.minimum(given)
