"""Does the server answer the same on the fast path as on the fallback? What was seen, and what it amounts to.

Two checks, because each misses faults that the other finds: log probabilities show a fault that leaves the answer right
(a wrong scale, a missing mask), needles show one that matters.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from fastfill.proof.answers_compare import Difference, difference, together
from fastfill.proof.answers_seen import AnswersEvidence, Pair
from fastfill.proof.attempt import Outcome, judge
from fastfill.proof.side import fallback_side, fast_calls, fast_side
from sglang_fastfill.conditions import FALLBACK_RID_PREFIX

__all__ = ["MEAN_BOUND", "WORST_BOUND", "Answers", "AnswersEvidence", "Check", "judge_answers", "unsound"]

MEAN_BOUND = 0.1
POOLED_BOUND = 0.065
WORST_BOUND = 0.45
"""Nats: of one prompt, of all prompts together, of one token. In the lab fast path and fallback agree to 0.001 where
only the route differs. Rounding softmax weights to fp8, as the real kernel does, gives up to 0.055 a prompt and 0.28
a token; the mildest wrong kernel, whose answers are a quarter too large, 0.08 over all prompts and 0.6 a token. Not
measured on MI350X."""
LOST_BOUND = 2
"""Needles: a single one may be lost to a near-tie."""

Status = Literal["right", "wrong", "cannot_say", "not_checked", "not_run", "unsound"]


class Check(NamedTuple):
    """One check of the answers, and its figures (nats, counts)."""

    name: Literal["logprobs", "needles"]
    status: Status
    detail: str
    finding: str = ""
    figures: dict[str, float] = {}  # noqa: RUF012


class Answers(NamedTuple):
    """How the comparison ended.

    Attributes:
        status: right and wrong; cannot_say where the server or the model does not allow it; not_checked where nothing
            was asked for; not_run where there was no fair trial in time; unsound where a side was not what it was
            meant to be.
        finding: The reason of a verdict that is not FIRED; empty otherwise.
    """

    status: Status
    detail: str
    finding: str = ""
    checks: tuple[Check, ...] = ()


def judge_answers(answers: AnswersEvidence | None) -> Answers:
    """Judge the answers; None where none were compared."""
    if answers is None:
        return Answers("not_checked", "no answers were compared")
    if answers.cannot:
        return Answers("cannot_say", answers.cannot)
    if broken := unsound(answers):
        return Answers("unsound", broken[1], broken[0])
    checks = (_logprobs(answers), _needles(answers))
    wrong = next((one for one in checks if one.status == "wrong"), None)
    if wrong is not None:
        return Answers("wrong", "; ".join(one.detail for one in checks if one.finding), wrong.finding, checks)
    if checks[0].status == "not_run":
        return Answers("not_run", checks[0].detail, checks[0].finding, checks)
    return Answers(checks[0].status, "; ".join(f"{one.name}: {one.detail}" for one in checks), "", checks)


def unsound(answers: AnswersEvidence) -> tuple[str, str] | None:
    """What shows that requests do not reach the server as they are sent, or that asking for the fallback is in vain.

    A request that no rank remembers counts only where its prompt never was compared: under load the ring may have moved
    on once.
    """
    for attempt in answers.sent():
        if attempt.rid.startswith(FALLBACK_RID_PREFIX) and (calls := fast_calls(attempt)):
            return "control_fired", f"{attempt.rid} asked for the fallback and made {calls} fast-path call(s)"
    if len(answers.pairs) >= answers.prompts:
        return None
    for attempt in answers.spoiled:
        outcome, why = judge(attempt)
        if outcome in (Outcome.UNSEEN, Outcome.REWRITTEN):
            return "probe_unseen" if outcome is Outcome.UNSEEN else "probe_rewritten", f"{attempt.rid}: {why}"
    return None


def _logprobs(answers: AnswersEvidence) -> Check:
    if len(answers.pairs) < answers.prompts:
        return _missing(answers)
    whys = [fast_side(pair.fast.attempt) or fallback_side(pair.fallback.attempt) for pair in answers.pairs]
    compared = [
        (pair, difference(pair.fast, pair.fallback)) for pair, why in zip(answers.pairs, whys, strict=True) if not why
    ]
    found = [(pair, one) for pair, one in compared if one.places]
    whole = together([one for _, one in found])
    figures = {
        "prompts": float(len(found)),
        "places": float(whole.places),
        "agreed": float(whole.agreed),
        "mean": round(whole.mean, 5),
        "worst": round(whole.worst, 5),
        "nan": float(whole.nan_fast),
    }
    said = (
        f"{len(found)} prompt(s) of {_lengths([pair for pair, _ in found])} tokens, {whole.places} places, "
        f"top-1 agrees at {whole.agreed}, mean |Δlogprob| {whole.mean:.3f}, worst {whole.worst:.3f}"
    )
    if whole.nan_fallback:
        detail = f"the fallback's own values are not finite at {whole.nan_fallback} of {whole.places} places"
        return Check("logprobs", "cannot_say", detail, "", figures)
    if whole.nan_fast:
        detail = (
            f"the fast path's values are not finite at {whole.nan_fast} of {whole.places} places, the fallback's are"
        )
        return Check("logprobs", "wrong", detail, "answers_not_finite", figures)
    apart = [(pair, one) for pair, one in found if _apart(one)]
    if apart or whole.mean > POOLED_BOUND:
        apart = apart or found
        named = "; ".join(
            f"at {_length(pair)} tokens mean {one.mean:.3f}, worst {one.worst:.3f}" for pair, one in apart
        )
        bounds = f"bounds {MEAN_BOUND}, {WORST_BOUND}; all prompts {whole.mean:.3f}, {POOLED_BOUND}"
        detail = f"|Δlogprob| between fast path and fallback: {named} ({bounds})"
        return Check("logprobs", "wrong", detail, "answers_differ", figures)
    if not found or len(compared) < len(answers.pairs):
        why = next((why for why in whys if why), "the server gave no log probabilities")
        return Check("logprobs", "cannot_say", f"not every prompt could be compared: {why}", "", figures)
    return Check("logprobs", "right", said, "", figures)


def _missing(answers: AnswersEvidence) -> Check:
    done = f"{len(answers.pairs)} of {answers.prompts} prompts were compared"
    if not answers.spoiled:
        return Check("logprobs", "not_run", f"{done}: no time was left", "deadline")
    last = answers.spoiled[-1]
    if last.answer == "refused":
        return Check("logprobs", "cannot_say", f"{done}: {last.detail}")
    why = (fallback_side if last.rid.startswith(FALLBACK_RID_PREFIX) else fast_side)(last)
    return Check("logprobs", "not_run", f"{done}: {why}", "deadline" if last.answer == "timed_out" else "no_fair_trial")


def _apart(one: Difference) -> bool:
    return one.mean > MEAN_BOUND or one.worst > WORST_BOUND


def _length(pair: Pair) -> int:
    return pair.fast.attempt.prompt_tokens


def _lengths(pairs: list[Pair]) -> str:
    return ", ".join(str(_length(pair)) for pair in pairs) or "no"


def _needles(answers: AnswersEvidence) -> Check:
    if answers.no_search:
        return Check("needles", "cannot_say", answers.no_search)
    if not answers.searches:
        return Check("needles", "not_run", "no request was a fair trial in time")
    total = found = lost = nowhere = 0
    depths: list[float] = []
    for one in answers.searches:
        if fast_side(one.fast.attempt):
            continue
        ours = one.found(one.fast)
        compared = one.fallback is not None and not fallback_side(one.fallback.attempt)
        theirs = one.found(one.fallback) if one.fallback is not None and compared else (False,) * len(ours)
        for needle, mine, other in zip(one.hidden, ours, theirs, strict=True):
            total += 1
            found += mine
            if not mine and other:
                lost += 1
                depths.append(needle.depth)
            nowhere += not mine and not other
    figures = {"needles": float(total), "found": float(found), "lost": float(lost)}
    said = f"{found} of {total} found on the fast path"
    if total == 0:
        return Check("needles", "cannot_say", "no request for a needle took the fast path alone", "", figures)
    if lost >= LOST_BOUND:
        where = ", ".join(f"{depth:.0%}" for depth in sorted(set(depths)))
        return Check(
            "needles",
            "wrong",
            f"{said}; the fallback finds {lost} more, at {where} of the prompt",
            "needles_lost",
            figures,
        )
    if nowhere and not found:
        return Check(
            "needles", "cannot_say", "the model cannot retrieve: it fails on the fallback as well", "", figures
        )
    return Check("needles", "right", said, "", figures)
