"""Collects the evidence: reads the server, sends probes until one is a fair trial, sends the control, reads again."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from fastfill.proof.answers_send import compare, cost
from fastfill.proof.attempt import Outcome, judge
from fastfill.proof.counters import rise
from fastfill.proof.evidence import Attempt, Evidence
from fastfill.proof.probe import CONTROL_RID_PREFIX, RID_PREFIX, Length, length, new_rid, prompt, request
from fastfill.proof.server import Server
from fastfill.proof.soundness import before_probe
from fastfill.proof.tally import is_ours, ring_calls
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
    """

    server: Server
    plan: Plan
    deadline: Deadline
    talk: Talk
    size: Length
    pool: tuple[int, ...]


class Plan(NamedTuple):
    """What the operator asked for."""

    prompt_tokens: int | None = None
    attempts: int = 5
    count_layers: Callable[[str], int | None] = lambda model_path: None


def gather(server: Server, plan: Plan, deadline: Deadline, talk: Talk) -> Evidence:
    """Read, probe and read again.

    Raises:
        FastfillError: The server cannot be reached, is no SGLang server, or answers what we cannot read.
    """
    facts = server.facts()
    talk.check("server", "ok", f"SGLang {facts.version}, tp {facts.tp_size}, {facts.model_path}")
    status = server.status()
    evidence = Evidence(
        url=server.url,
        server=facts,
        status_before=status,
        counters_before=server.counters() if status else None,
        config_layers=plan.count_layers(facts.model_path),
        deadline_s=deadline.seconds,
    )
    unfit = before_probe(evidence)
    if unfit:
        talk.check(unfit[0], "fail", unfit[1])
        return evidence
    talk.check("witness", "ok", f"plugin attached, {len(status.ranks) if status else 0} rank(s) report")
    size = length(plan.prompt_tokens, facts, status)
    if size.refused:
        talk.check("probe", "fail", size.refused)
        return evidence.model_copy(update={"not_sent": size.refused})
    return _send_and_read(server, evidence, size, plan, deadline, talk)


def _send_and_read(
    server: Server, evidence: Evidence, size: Length, plan: Plan, deadline: Deadline, talk: Talk
) -> Evidence:
    visit = Visit(server, plan, deadline, talk, size, server.ordinary_ids())
    cost = sum(step.tokens(visit, evidence) for step in STEPS)
    talk.check(
        "probe",
        "note",
        f"will send {cost} prompt tokens, control included: {size.tokens} a request ({size.why}); "
        f"at most {cost * plan.attempts} if other traffic spoils them",
    )
    for step in STEPS:
        evidence = step.run(visit, evidence)
    evidence = evidence.model_copy(update={"deadline_passed": deadline.passed()})
    try:
        return _read_again(server, evidence)
    except TimedOut:
        # It did not answer the probe either: that is the finding, not that it is still silent.
        if any(attempt.answer == "timed_out" for attempt in evidence.sent()):
            return evidence
        raise


def _probe(visit: Visit, evidence: Evidence) -> Evidence:
    """A probe to every data-parallel rank."""
    attempts: list[Attempt] = []
    for place in targets(evidence.server.dp_size):
        attempts += until_fair(visit, RID_PREFIX, place)
    return evidence.model_copy(update={"attempts": tuple(attempts)})


def _control(visit: Visit, evidence: Evidence) -> Evidence:
    """The negative control, once every probe fired."""
    if not fired(evidence):
        return evidence
    status = visit.server.status()
    if status and all(rank.forced_fallback_allowed for rank in status.ranks):
        place = targets(evidence.server.dp_size)[0]
        return evidence.model_copy(update={"controls": tuple(until_fair(visit, CONTROL_RID_PREFIX, place))})
    why = "the server does not allow forced fallbacks (FASTFILL_ALLOW_FORCED_FALLBACK=1, set by profiles)"
    visit.talk.check("control", "note", f"not possible: {why}")
    return evidence.model_copy(update={"no_control": why})


class Step(NamedTuple):
    """A part of the proof that sends something.

    Attributes:
        run: Sends it, and returns the evidence with its part added.
        tokens: How many prompt tokens that takes where nothing is sent again.
    """

    run: Callable[[Visit, Evidence], Evidence]
    tokens: Callable[[Visit, Evidence], int]


STEPS = (
    Step(_probe, lambda visit, evidence: visit.size.tokens * len(targets(evidence.server.dp_size))),
    Step(_control, lambda visit, _: visit.size.tokens),
    Step(compare, cost),
)
"""In the order in which they are run."""


def until_fair(visit: Visit, prefix: str, place: int | None) -> Iterator[Attempt]:
    """Send requests until one is a fair trial, or there is no point in sending more."""
    server, plan, deadline, talk, size, pool = visit
    tokens = size.tokens
    name = "control" if prefix == CONTROL_RID_PREFIX else "probe"
    for number in range(1, plan.attempts + 1):
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
        if (ranks and len(kept) == len(ranks)) or settle.passed():
            return kept
        time.sleep(POLL_S)


def _read_again(server: Server, evidence: Evidence) -> Evidence:
    """Read the status and the counters again; the counters until they have caught up with the ring, or should have."""
    evidence = evidence.model_copy(update={"status_after": server.status()})
    settle = Deadline(SETTLE_S)
    while True:
        counters = server.counters()
        evidence = evidence.model_copy(update={"counters_after": counters})
        if counters is None or settle.passed() or _caught_up(evidence):
            return evidence
        time.sleep(POLL_S)


def _caught_up(evidence: Evidence) -> bool:
    if evidence.counters_before is None or evidence.counters_after is None:
        return True
    rose = rise(evidence.counters_before, evidence.counters_after)
    owed = ring_calls(evidence.sent())
    return all(
        rose.get(rank, Counter())[key] >= count for rank, counts in owed.items() for key, count in counts.items()
    )


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
