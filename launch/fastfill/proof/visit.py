"""One proof under way: what its steps need, and how a request is sent until it is a fair trial."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from fastfill.errors import FastfillError, NotReadyError
from fastfill.proof.attempt import Outcome, judge
from fastfill.proof.evidence import Attempt, Evidence
from fastfill.proof.logsource import Source
from fastfill.proof.probe import CONTROL_RID_PREFIX, Length, new_rid, prompt, request
from fastfill.proof.server import Server
from fastfill.proof.tally import is_ours
from fastfill.proof.transport import Deadline, TimedOut
from fastfill.proof.verdict import targets
from fastfill.proof.wire import RankPasses, Status

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
    find_scales: Callable[[str, Status | None], str] = lambda model_path, status: ""
    witnesses: frozenset[str] = frozenset({"counters"})
    named: frozenset[str] = frozenset()
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
        with withdrawing(server, rid):
            answer = server.generate(body, timeout_s=max(0.1, deadline.remaining()))
    except TimedOut as error:
        return attempt.model_copy(update={"answer": "timed_out", "detail": error.what})
    if answer.refusal:
        return attempt.model_copy(update={"answer": "refused", "detail": answer.refusal})
    return with_passes(attempt, server, deadline)


@contextmanager
def withdrawing(server: Server, *rids: str) -> Iterator[None]:
    """Take requests back that nobody waits for any more: the time is up, or the operator has interrupted."""
    try:
        yield
    except (TimedOut, KeyboardInterrupt):
        for rid in rids:
            server.abort(rid)
        raise


def with_passes(attempt: Attempt, server: Server, deadline: Deadline) -> Attempt:
    """An answered request with its passes; one whose passes the server does not tell in time is open, not unseen."""
    try:
        return attempt.model_copy(update={"ranks": passes_of(server, attempt.rid, deadline)})
    except (TimedOut, NotReadyError) as error:
        return attempt.model_copy(update={"answer": "timed_out", "detail": silence(error)})


def silence(error: FastfillError) -> str:
    """What did not answer, and how."""
    return f"{error.what}: {error.where}"


def passes_of(server: Server, rid: str, deadline: Deadline, *, rids: tuple[str, ...] = ()) -> tuple[RankPasses, ...]:
    """Wait until every rank that is to write these requests down has done so, or should have.

    Args:
        server: The server.
        rid: The request's id, or what the ids of several begin with.
        deadline: Of the whole proof.
        rids: The ids of several; none where ``rid`` is the one.

    Raises:
        TimedOut: The server did not answer the question.
    """
    settle = Deadline(min(SETTLE_S, max(1.0, deadline.remaining())))
    while True:
        found = server.passes(rid)
        ranks = found.ranks if found else ()
        kept = tuple(one for one in ranks if one.passes)
        if settle.passed() or _written(ranks, frozenset(rids or (rid,))):
            return kept
        time.sleep(POLL_S)


def _written(ranks: tuple[RankPasses, ...], rids: frozenset[str]) -> bool:
    """Whether every request is noted, equally often by all ranks of its replica; the other replicas never see it.

    One that lags has yet to write its last passes.
    """
    replicas: dict[int, list[RankPasses]] = {}
    for one in ranks:
        replicas.setdefault(one.rank.dp, []).append(one)
    used = [group for group in replicas.values() if any(one.passes for one in group)]
    noted = {rid for group in used for one in group for each in one.passes for rid in each.rids}
    return rids <= noted and all(len({len(one.passes) for one in group}) == 1 for group in used)


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
