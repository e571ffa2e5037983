"""Was this request a fair trial? Only a pass that the probe had to itself, or shared harmlessly, says anything."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from fastfill.proof.sent import Attempt
from fastfill.proof.wire import Pass
from sglang_fastfill.conditions import BY_ID, FALLBACK_RID_PREFIX


class Outcome(Enum):
    """What became of a request. VALID counts; VOID is sent again; the others end the proof."""

    VALID = "valid"
    VOID = "void"
    UNSEEN = "unseen"
    UNANSWERED = "unanswered"
    REFUSED = "refused"
    REWRITTEN = "rewritten"


class Judged(NamedTuple):
    """An outcome and, unless it is VALID, why."""

    outcome: Outcome
    why: str = ""


def target_passes(attempt: Attempt, passes: tuple[Pass, ...]) -> list[Pass]:
    """The prefill passes of the target model (not a draft's) that hold this very request."""
    return [one for one in passes if one.is_prefill and not one.draft and attempt.rid in one.rids]


def judge(attempt: Attempt) -> Judged:
    """Decide what one request is worth.

    A request is void where other traffic decided the outcome: it shared a pass with a sequence that has a prefix, with
    someone's forced fallback, with anything else while a batch condition held, or it was split because others took the
    room; and where its own first tokens were already cached.
    """
    if attempt.answer == "timed_out":
        return Judged(Outcome.UNANSWERED, attempt.detail or "the server did not answer it in time")
    if attempt.answer == "refused":
        return Judged(Outcome.REFUSED, attempt.detail)
    seen = {ranked.rank: target_passes(attempt, ranked.passes) for ranked in attempt.ranks}
    seen = {rank: passes for rank, passes in seen.items() if passes}
    if not seen:
        return Judged(Outcome.UNSEEN, "the server answered it, but no rank remembers a pass of it")
    for rank, passes in seen.items():
        why = _void(attempt, passes)
        if why:
            return Judged(Outcome.VOID, f"{rank}: {why}")
        reached = max(prefix + extend for prefix, extend in (_own(attempt, one) for one in passes))
        if reached != attempt.prompt_tokens:
            return Judged(
                Outcome.REWRITTEN, f"{rank}: {attempt.prompt_tokens} tokens were sent and {reached} were prefilled"
            )
    return Judged(Outcome.VALID)


def _own(attempt: Attempt, one: Pass) -> tuple[int, int]:
    index = one.rids.index(attempt.rid)
    return one.prefix[index], one.extend[index]


def _void(attempt: Attempt, passes: list[Pass]) -> str:
    ordered = sorted(passes, key=lambda one: one.number)
    prefix, _ = _own(attempt, ordered[0])
    if prefix > 0:
        return f"the first {prefix} tokens were cached already"
    for one in ordered:
        strangers = [(rid, start) for rid, start in zip(one.rids, one.prefix, strict=True) if rid != attempt.rid]
        if not strangers:
            continue
        if any(start > 0 for _, start in strangers):
            return "it shared its pass with a sequence that has a prefix"
        if any(rid.startswith(FALLBACK_RID_PREFIX) for rid, _ in strangers):
            return "it shared its pass with somebody's forced fallback"
        if any(_is_batch(reason) for reason in one.reasons):
            return "it shared its pass with other requests and a batch condition held"
        if len(ordered) > 1:
            return "it was split, because other requests took the room in its pass"
    return ""


def _is_batch(reason: str) -> bool:
    return reason in BY_ID and BY_ID[reason].scope == "batch"
