"""Which passes a proof waits for: those of every rank that is to note its requests, and of no other."""

from __future__ import annotations

from typing import Any

import pytest
from evidence_maker import one_pass, rank

from fastfill.proof import visit
from fastfill.proof.transport import Deadline
from fastfill.proof.wire import Pass, Passes, Rank, RankPasses


def test_a_rank_that_lags_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first pass of a split prompt is written, its second not yet: half a prompt would look rewritten."""
    monkeypatch.setattr(visit, "POLL_S", 0.0)
    both = tuple(one_pass("p", number=number) for number in (1, 2))
    looks = [
        Passes(
            schema="fastfill.passes/1",
            ranks=tuple(RankPasses(rank=rank(tp), pid=1, passes=passes) for tp, passes in enumerate(seen)),
        )
        for seen in ((both, ()), (both, both[:1]), (both, both))
    ]

    class Lagging:
        def passes(self, rid: str) -> Passes:
            return looks.pop(0)

    found = visit.passes_of(Lagging(), "p", Deadline(60.0))  # type: ignore[arg-type]
    assert [len(one.passes) for one in found] == [2, 2] and looks == []


def test_ranks_of_other_replicas_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """With data parallelism one replica runs the request, and the others never note it."""
    monkeypatch.setattr(visit, "SETTLE_S", 60.0)

    def looked(*passes: tuple[Pass, ...]) -> Passes:
        ranks = (Rank(dp=0, tp=0), Rank(dp=0, tp=1), Rank(dp=1, tp=2), Rank(dp=1, tp=3))
        listed = tuple(RankPasses(rank=one, pid=1, passes=seen) for one, seen in zip(ranks, passes, strict=True))
        return Passes(schema="fastfill.passes/1", ranks=listed)

    def asked(*looks: Passes, **more: Any) -> int:
        left = list(looks)

        class Replicas:
            def passes(self, rid: str) -> Passes:
                return left.pop(0)

        visit.passes_of(Replicas(), "p", Deadline(60.0), **more)  # type: ignore[arg-type]
        return len(left)

    one, two = (one_pass("p"),), (one_pass("p-2"),)
    assert asked(looked((), (), one, one)) == 0
    assert asked(looked((), (), one, ()), looked((), (), one, one)) == 0, "its own replica is waited for"
    both = looked(one, one, two, two)
    assert asked(looked(one, one, (), ()), both, rids=("p", "p-2")) == 0, "every request of a load is waited for"
