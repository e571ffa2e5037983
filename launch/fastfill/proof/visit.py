"""One proof under way: what its steps need, and how a request is sent until it is a fair trial."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, Protocol

from fastfill.proof.attempt import Outcome, judge
from fastfill.proof.evidence import Attempt, Evidence
from fastfill.proof.logsource import Source
from fastfill.proof.probe import CONTROL_RID_PREFIX, Length, new_rid, prompt, request
from fastfill.proof.server import Server
from fastfill.proof.tally import is_ours
from fastfill.proof.transport import Deadline, TimedOut
from fastfill.proof.verdict import targets
from fastfill.proof.wire import RankPasses

POLL_S = 0.1
SETTLE_S = 5.0
"""How long a rank may take to write down a pass that the client has its answer of already."""


class Talk(Protocol):
    """How a proof reports what it does, as it does it."""

    def check(self, name: str, outcome: str, detail: str) -> None:
        """One finished check; the outcome is one of ok, fail, note, retry."""

    def working(self, what: str) -> AbstractContextManager[object]:
        """Something that takes a while."""


class Visit(NamedTuple):
    """One proof under way: what each of its steps needs.

    Attributes:
        size: How long a request is, in tokens.
        pool: Token ids to draw prompts from.
        space_s: Seconds to wait before each request.
    """

    server: Server
    plan: Plan
    deadline: Deadline
    talk: Talk
    size: Length
    pool: tuple[int, ...]
    space_s: float = 0.0


class Plan(NamedTuple):
    """What the operator asked for."""

    prompt_tokens: int | None = None
    attempts: int = 5
    count_layers: Callable[[str], int | None] = lambda model_path: None
    witnesses: frozenset[str] = frozenset({"counters"})
    log: Source = Source()
    profile_steps: int = 32
    profile_dir: Path | None = None
    load: int | None = None
    light: bool = False
    min_coverage: float | None = None


def until_fair(visit: Visit, prefix: str, place: int | None) -> Iterator[Attempt]:
    """Send requests until one is a fair trial, or there is no point in sending more."""
    server, plan, deadline, talk, pool = visit.server, visit.plan, visit.deadline, visit.talk, visit.pool
    tokens = visit.size.tokens
    name = "control" if prefix == CONTROL_RID_PREFIX else "probe"
    for number in range(1, plan.attempts + 1):
        if visit.space_s:
            with talk.working(f"{name} {number}: waiting {visit.space_s:.0f} s, to stay below 1 % of the traffic"):
                time.sleep(min(visit.space_s, deadline.remaining()))
        if deadline.passed():
            talk.check(name, "fail", f"the time is up ({deadline.seconds:.0f} s)")
            return
        with talk.working(f"{name} {number}: {tokens} tokens"):
            attempt = _send(server, new_rid(prefix), tokens, pool, place, deadline)
        judged = judge(attempt)
        yield attempt
        if judged.outcome is Outcome.VALID:
            talk.check(name, "ok", f"answered and seen, {_seen(attempt)}")
            return
        if judged.outcome is not Outcome.VOID:
            talk.check(name, "fail", judged.why)
            return
        talk.check(name, "retry", f"void: {judged.why}")
        time.sleep(min(0.2 * number, deadline.remaining()))


def _send(
    server: Server, rid: str, tokens: int, pool: tuple[int, ...], place: int | None, deadline: Deadline
) -> Attempt:
    body = request(rid, prompt(pool, tokens), dp=place)
    attempt = Attempt(rid=rid, dp=place, prompt_tokens=tokens, answer="answered")
    try:
        answer = server.generate(body, timeout_s=max(0.1, deadline.remaining()))
    except TimedOut as error:
        server.abort(rid)
        return attempt.model_copy(update={"answer": "timed_out", "detail": error.what})
    except KeyboardInterrupt:
        server.abort(rid)
        raise
    if answer.refusal:
        return attempt.model_copy(update={"answer": "refused", "detail": answer.refusal})
    return attempt.model_copy(update={"ranks": passes_of(server, rid, deadline)})


def passes_of(server: Server, rid: str, deadline: Deadline) -> tuple[RankPasses, ...]:
    """Wait until every rank that the server lists has written the request down, or should have."""
    settle = Deadline(min(SETTLE_S, max(1.0, deadline.remaining())))
    while True:
        found = server.passes(rid)
        ranks = found.ranks if found else ()
        kept = tuple(one for one in ranks if one.passes)
        if (ranks and len(kept) == len(ranks) and _level(kept)) or settle.passed():
            return kept
        time.sleep(POLL_S)


def _level(ranks: tuple[RankPasses, ...]) -> bool:
    """Whether the ranks of one replica have noted the same passes: one that lags has yet to write its last ones."""
    noted: dict[tuple[int, int], set[int]] = {}
    for one in ranks:
        noted.setdefault((one.rank.pp, one.rank.dp), set()).add(len(one.passes))
    return all(len(lengths) == 1 for lengths in noted.values())


def fired(evidence: Evidence) -> bool:
    """Whether a fair probe to each data-parallel rank made a fast-path call."""
    return all(_fired(evidence.attempts, place) for place in targets(evidence.server.dp_size))


def _fired(attempts: tuple[Attempt, ...], place: int | None) -> bool:
    return any(
        is_ours(call)
        for attempt in attempts
        if attempt.dp == place and judge(attempt).outcome is Outcome.VALID
        for ranked in attempt.ranks
        for one in ranked.passes
        for call in one.calls
    )


def _seen(attempt: Attempt) -> str:
    return f"in {max(len(one.passes) for one in attempt.ranks)} pass(es) on {len(attempt.ranks)} rank(s)"
