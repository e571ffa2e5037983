"""Which side of a comparison a request was on, by the ring: each returns why it was not, empty where it was."""

from __future__ import annotations

from fastfill.proof.attempt import Outcome, judge, target_passes
from fastfill.proof.sent import Attempt
from fastfill.proof.tally import is_ours
from sglang_fastfill.conditions import FALLBACK_RID_PREFIX


def fast_side(attempt: Attempt) -> str:
    """Prefilled from its first token on, and on the assembly kernel."""
    judged = judge(attempt)
    if judged.outcome is not Outcome.VALID:
        return judged.why
    if not fast_calls(attempt):
        reasons = sorted({id for ranked in attempt.ranks for one in ranked.passes for id in one.reasons})
        return f"it did not take the fast path ({', '.join(reasons) or 'no reason given'})"
    return ""


def fallback_side(attempt: Attempt) -> str:
    """Prefilled from its first token on, and never on the assembly kernel; in what company does not matter here."""
    if attempt.answer != "answered":
        return attempt.detail or "the server did not answer it"
    passes = [one for ranked in attempt.ranks for one in target_passes(attempt, ranked.passes)]
    if not passes:
        return "no rank remembers a pass of it"
    first = min(passes, key=lambda one: one.number)
    cached = first.prefix[first.rids.index(attempt.rid)]
    if cached:
        return f"its first {cached} tokens were cached, by whichever kernel wrote them"
    if calls := fast_calls(attempt):
        return f"it made {calls} fast-path call(s), though it asked for the fallback"
    return ""


def hopeless(attempt: Attempt) -> bool:
    """Whether sending it again would tell nothing new: refused, changed on its way, or a fallback that fired."""
    forced = attempt.rid.startswith(FALLBACK_RID_PREFIX) and fast_calls(attempt) > 0
    return forced or judge(attempt).outcome in (Outcome.REFUSED, Outcome.UNSEEN, Outcome.REWRITTEN)


def fast_calls(attempt: Attempt) -> int:
    """Calls of the assembly kernel in the passes that hold this request, over all ranks."""
    return sum(
        call.count
        for ranked in attempt.ranks
        for one in target_passes(attempt, ranked.passes)
        for call in one.calls
        if is_ours(call)
    )
