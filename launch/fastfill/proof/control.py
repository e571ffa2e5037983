"""The negative control: a request that must stay off the path, so that a detector that always says yes is caught."""

from __future__ import annotations

from typing import Literal, NamedTuple

from fastfill.proof.attempt import Outcome, judge, target_passes
from fastfill.proof.evidence import Attempt, Evidence
from fastfill.proof.side import fast_calls

REASON = "forced_fallback"


class Control(NamedTuple):
    """How the control ended; ``finding`` names what makes the proof invalid, empty otherwise."""

    status: Literal["passed", "failed", "not_possible", "not_run"]
    detail: str
    finding: str = ""


def judge_control(evidence: Evidence) -> Control:
    """Judge the controls in order: the first that is conclusive decides.

    A control that fired is conclusive whatever it shared its pass with; one that did not needs the right reason.
    """
    if not evidence.controls and evidence.companions:
        return _beside(evidence)
    if not evidence.controls:
        if evidence.no_control:
            return Control("not_possible", evidence.no_control)
        return Control("not_run", "no time was left")
    why = ""
    for attempt in evidence.controls:
        if fired := fast_calls(attempt):
            return Control("failed", f"the negative control made {fired} fast-path call(s)", "control_fired")
        judged = judge(attempt)
        if judged.outcome is Outcome.UNSEEN:
            return Control("failed", judged.why, "probe_unseen")
        if judged.outcome is not Outcome.VALID:
            why = judged.why
            continue
        reasons = _reasons(attempt)
        if REASON in reasons:
            return Control("passed", f"did not fire: {REASON}")
        named = ", ".join(sorted(reasons)) or "none"
        return Control("failed", f"the negative control's reason is not {REASON} but: {named}", "control_unexplained")
    return Control("not_run", why)


def without_prefix(attempt: Attempt) -> str:
    """Why a control that was sent beside a cached prompt says nothing; empty where each of its passes had a prefix."""
    judged = judge(attempt)
    if judged.outcome not in (Outcome.VALID, Outcome.VOID):
        return judged.why
    for ranked in attempt.ranks:
        for one in target_passes(attempt, ranked.passes):
            if not any(start > 0 for start in one.prefix):
                return f"{ranked.rank}: it did not meet its cached companion in a pass"
    return ""


def _beside(evidence: Evidence) -> Control:
    """Judge the controls beside a cached prompt, before SGLang 0.5.19: a prefix takes the whole batch off the path."""
    why = ""
    for attempt in evidence.companions:
        if attempt.answer == "timed_out":
            return Control("not_run", judge(attempt).why)
        why = without_prefix(attempt)
        if why:
            continue
        if fired := fast_calls(attempt):
            return Control("failed", f"beside a cached prompt it made {fired} fast-path call(s)", "control_fired")
        named = ", ".join(sorted(_reasons(attempt))) or "no gate to say why"
        return Control("passed", f"did not fire beside a cached prompt: {named}")
    return Control("not_possible", f"no forced fallback, and {why or 'no time was left'}")


def _reasons(attempt: Attempt) -> set[str]:
    return {
        reason
        for ranked in attempt.ranks
        for one in target_passes(attempt, ranked.passes)
        for reason, count in one.reasons.items()
        if count > 0
    }
