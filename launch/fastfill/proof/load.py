"""The same under load: several long prompts at once, and what share of them took the path."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from fastfill.errors import NotReadyError
from fastfill.proof.probe import new_rid, prompt
from fastfill.proof.sent import Attempt
from fastfill.proof.tally import is_ours
from fastfill.proof.transport import TimedOut
from fastfill.proof.wire import Pass, Rank, RankPasses, Wire

if TYPE_CHECKING:
    from fastfill.proof.evidence import Evidence
    from fastfill.proof.visit import Visit

RID_PREFIX = "fastfill-load-"
DEFAULT = 8
MOST_TOKENS = 100_000
"""Prompt tokens of a load that nobody asked for."""


class LoadEvidence(Wire):
    """Several prompts sent in one request.

    Attributes:
        prompts: How many.
        tokens: The length of each.
        problem: Why they could not be sent or were not answered; empty otherwise.
        attempts: One a prompt, with every pass that held it.
    """

    prompts: int
    tokens: int
    problem: str = ""
    attempts: tuple[Attempt, ...] = ()

    def sent(self) -> tuple[Attempt, ...]:
        """The requests."""
        return self.attempts


class Loaded(NamedTuple):
    """Shares of the load, 0 to 1, None where no rank remembers it; ``stopped`` has each reason's of the work."""

    prompts: int
    passes: int
    tokens: float | None
    attention_work: float | None
    stopped: dict[str, float]


def measure(load: LoadEvidence) -> Loaded:
    """What share of the prompts' prefill took the path, over all ranks.

    A pass has one kernel a layer call: its prompts share what its calls say, and its reasons share the rest.
    """
    mine = {attempt.rid for attempt in load.attempts}
    tokens: Counter[str] = Counter()
    work: Counter[str] = Counter()
    seen: dict[tuple[Rank, int], Pass] = {}
    for attempt in load.attempts:
        for ranked in attempt.ranks:
            seen |= {(ranked.rank, one.number): one for one in ranked.passes if one.is_prefill and not one.draft}
    for one in seen.values():
        own = [(p, e) for rid, p, e in zip(one.rids, one.prefix, one.extend, strict=True) if rid in mine]
        calls = sum(call.count for call in one.calls)
        if not own or not calls:
            continue
        area = sum(((p + e) ** 2 - p**2) / 2 for p, e in own) * calls
        for reason, share in _shares(one).items():
            tokens[reason] += share * sum(e for _, e in own)  # type: ignore[assignment]
            work[reason] += share * area  # type: ignore[assignment]
    whole = sum(work.values())
    return Loaded(
        load.prompts,
        len({(rank.dp, number) for rank, number in seen}),
        tokens[""] / sum(tokens.values()) if whole else None,
        work[""] / whole if whole else None,
        dict(sorted(((id, part / whole) for id, part in work.items() if id and part), key=lambda pair: -pair[1])),
    )


def _shares(one: Pass) -> dict[str, float]:
    """The pass's layer calls by reason, 1 in all; the fast path's reason is empty."""
    calls = sum(call.count for call in one.calls)
    fast = sum(call.count for call in one.calls if is_ours(call)) / calls
    reasons = one.reasons or {"unexplained": 1}
    weight = sum(reasons.values()) or 1
    return {"": fast} | {id: (1 - fast) * count / weight for id, count in reasons.items()}


def count(visit: Visit) -> int:
    """How many prompts are sent: as many as asked for, else 8, fewer where that would be more than 100,000 tokens."""
    if visit.plan.load is not None:
        return visit.plan.load
    fitting = MOST_TOKENS // visit.size.tokens
    return min(DEFAULT, fitting) if fitting > 1 else 0


def cost(visit: Visit, _: Evidence) -> int:
    """What the step takes, in prompt tokens."""
    return count(visit) * visit.size.tokens


def load(visit: Visit, evidence: Evidence) -> Evidence:
    """Send them, once every probe fired."""
    from fastfill.proof.visit import fired, passes_of, silence, withdrawing

    prompts = count(visit)
    if not prompts or not fired(evidence):
        return evidence
    group = new_rid(RID_PREFIX)
    rids = [f"{group}-{number}" for number in range(prompts)]
    tokens = visit.size.tokens
    body: dict[str, Any] = {
        "rid": rids,
        "input_ids": [prompt(visit.pool, tokens) for _ in rids],
        "extra_key": rids,
        "sampling_params": {"max_new_tokens": 1, "temperature": 0.0},
        "stream": False,
    }
    found = LoadEvidence(prompts=prompts, tokens=tokens)
    try:
        at_once = f"load: {prompts} prompts of {tokens} tokens at once"
        with visit.talk.working(at_once), withdrawing(visit.server, *rids):
            answer = visit.server.generate(body, timeout_s=max(0.1, visit.deadline.remaining()))
            problem = answer.refusal
    except TimedOut:
        problem = "they were not answered in time"
    ranks: tuple[RankPasses, ...] = ()
    if not problem:
        try:
            ranks = passes_of(visit.server, group, visit.deadline, rids=tuple(rids))
        except (TimedOut, NotReadyError) as error:
            problem = silence(error)
    found = found.model_copy(update={"problem": problem, "attempts": _attempts(rids, tokens, ranks)})
    share = measure(found)
    said = problem or f"{prompts} prompts at once in {share.passes} pass(es): " + (
        "no pass is remembered"
        if share.attention_work is None
        else f"{share.attention_work:.1%} of the attention work on the path"
    )
    visit.talk.check("load", "note", said)
    return evidence.model_copy(update={"load": found})


def _attempts(rids: list[str], tokens: int, ranks: tuple[RankPasses, ...]) -> tuple[Attempt, ...]:
    """One attempt a prompt, with the passes that held it."""
    return tuple(
        Attempt(
            rid=rid,
            prompt_tokens=tokens,
            answer="answered" if ranks else "timed_out",
            ranks=tuple(
                ranked.model_copy(update={"passes": tuple(one for one in ranked.passes if rid in one.rids)})
                for ranked in ranks
            ),
        )
        for rid in rids
    )
