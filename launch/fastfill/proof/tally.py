"""Per rank: how many fast-path calls the probe's passes owed, and how many were seen."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from fastfill.proof.attempt import target_passes
from fastfill.proof.counters import CallKey
from fastfill.proof.sent import Attempt
from fastfill.proof.wire import KernelCalls, Pass, Rank, RankStatus
from sglang_fastfill.conditions import HEAD_DIM

KERNEL = "asm"


class Draft(NamedTuple):
    """A draft model's account: its passes that held the request, the calls that they owed, and those that fired."""

    passes: int
    expected: int
    observed: int
    reasons: dict[str, int]


class Tally(NamedTuple):
    """One rank's account of one request.

    Attributes:
        layers: Full-attention layers that the rank holds.
        passes: Passes of the target model that held the request; 0 is a rank that did not see it.
        expected: Calls owed: one a layer and pass, and at least one pass.
        observed: Calls of the assembly kernel for head dim 256.
        reasons: Attention-layer calls that left the path, by condition.
        calls: Every call of these passes, whatever the kernel.
        draft: The same of the draft model, which prefills the prompt with layers of its own; None without one.
    """

    rank: Rank
    pid: int
    layers: int
    passes: int
    expected: int
    observed: int
    reasons: dict[str, int]
    calls: tuple[KernelCalls, ...]
    draft: Draft | None = None


def is_ours(call: KernelCalls) -> bool:
    """Whether a call is the path this kit exists for."""
    return call.kernel == KERNEL and call.head_dim == HEAD_DIM


def tally(attempt: Attempt, status: RankStatus) -> Tally:
    """Count one rank's calls in the passes that hold this request."""
    mine: list[Pass] = []
    for ranked in attempt.ranks:
        if ranked.rank == status.rank:
            mine += target_passes(attempt, ranked.passes)
    reasons: Counter[str] = Counter()
    calls: Counter[tuple[str, str, int]] = Counter()
    for one in mine:
        reasons.update(one.reasons)
        for call in one.calls:
            calls[call.fn, call.kernel, call.head_dim] += call.count
    listed = tuple(
        KernelCalls(fn=fn, kernel=kernel, head_dim=dim, count=count) for (fn, kernel, dim), count in calls.items()
    )
    layers = status.model.attention_layers
    return Tally(
        rank=status.rank,
        pid=status.pid,
        layers=layers,
        passes=len(mine),
        expected=layers * max(1, len(mine)),
        observed=sum(call.count for call in listed if is_ours(call)),
        reasons={id: count for id, count in reasons.items() if count > 0},
        calls=listed,
        draft=_draft(attempt, status),
    )


def _draft(attempt: Attempt, status: RankStatus) -> Draft | None:
    passes = [
        one
        for ranked in attempt.ranks
        if ranked.rank == status.rank
        for one in ranked.passes
        if one.draft and one.is_prefill and attempt.rid in one.rids
    ]
    if status.draft_model is None or not passes:
        return None
    reasons: Counter[str] = Counter()
    for one in passes:
        reasons.update(one.reasons)
    return Draft(
        passes=len(passes),
        expected=status.draft_model.attention_layers * len(passes),
        observed=sum(call.count for one in passes for call in one.calls if is_ours(call)),
        reasons={id: count for id, count in reasons.items() if count > 0},
    )


def ring_calls(attempts: tuple[Attempt, ...]) -> dict[Rank, Counter[CallKey]]:
    """The calls a rank of all passes that hold any of these requests, each pass once: what the counters must show."""
    rids = {attempt.rid for attempt in attempts}
    found: dict[Rank, Counter[CallKey]] = {}
    counted: set[tuple[Rank, int]] = set()
    for attempt in attempts:
        for ranked in attempt.ranks:
            for one in ranked.passes:
                if (ranked.rank, one.number) in counted or rids.isdisjoint(one.rids):
                    continue
                counted.add((ranked.rank, one.number))
                counts = found.setdefault(ranked.rank, Counter())
                for call in one.calls:
                    counts[CallKey(call.fn, call.kernel, call.head_dim, one.draft)] += call.count
    return found
