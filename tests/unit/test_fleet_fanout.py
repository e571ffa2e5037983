"""Who copies a model from whom."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfill.fleet.fanout import assign, rounds


def play(hosts: int, each: int = 2, dead: frozenset[str] = frozenset()) -> tuple[set[str], int]:
    """Rounds until nobody gets it any more; copying to or from a dead host fails."""
    names = [f"h{number:03}" for number in range(hosts)]
    have, tried, count = [names[0]], {name: [] for name in names}, 0
    while plan := assign(have, [name for name in names if name not in have], each, tried):
        count += 1
        for host, seed in plan.items():
            if dead & {host, seed}:
                tried[host].append(seed)
            else:
                have.append(host)
    return set(have), count


def test_each_finished_host_seeds_two() -> None:
    assert assign(["a"], ["b", "c", "d"]) == {"b": "a", "c": "a"}
    assert assign(["a", "b", "c"], ["d", "e", "f", "g"]) == {"d": "a", "e": "b", "f": "c", "g": "a"}
    assert play(200) == ({f"h{number:03}" for number in range(200)}, 5)


def test_a_seed_that_failed_a_host_is_not_asked_again() -> None:
    assert assign(["a", "b"], ["c"], tried={"c": ["a"]}) == {"c": "b"}
    assert assign(["a"], ["c"], tried={"c": ["a"]}) == {}


@pytest.mark.parametrize(("have", "want", "each", "wanted"), [(1, 0, 2, 0), (1, 2, 2, 1), (1, 199, 2, 5), (1, 3, 1, 2)])
def test_rounds(have: int, want: int, each: int, wanted: int) -> None:
    assert rounds(have, want, each) == wanted


def test_nobody_to_copy_from() -> None:
    assert assign([], ["a"]) == {}
    with pytest.raises(ValueError, match="nobody"):
        rounds(0, 1)


@settings(deadline=None)
@given(st.integers(1, 60), st.integers(1, 4), st.sets(st.integers(1, 59), max_size=10))
def test_every_host_that_lives_gets_it_and_it_ends(hosts: int, each: int, dead: set[int]) -> None:
    gone = frozenset(f"h{number:03}" for number in dead if number < hosts)
    have, count = play(hosts, each, gone)
    assert have == {f"h{number:03}" for number in range(hosts)} - gone
    assert gone or count == rounds(1, hosts - 1, each)
