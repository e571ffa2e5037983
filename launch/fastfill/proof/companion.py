"""The negative control where no request may ask for the fallback: a fresh prompt in one batch with a cached one.

Facts: before SGLang 0.5.19 one sequence with a prefix takes its whole batch off the path. Two prompts of one request
meet in the scheduler's queue at once. The companion is cached under an ``extra_key`` of its own, so that the control
has no prefix.
"""

from __future__ import annotations

from typing import Any

from fastfill.proof.control import without_prefix
from fastfill.proof.evidence import Attempt, Evidence
from fastfill.proof.explain import version
from fastfill.proof.probe import new_rid, prompt
from fastfill.proof.transport import TimedOut
from fastfill.proof.visit import Visit, with_passes, withdrawing

RID_PREFIX = "fastfill-beside-"
COMPANION_TOKENS = 256
_REACHES_PREFIXES = (0, 5, 19)


def impossible(evidence: Evidence) -> str:
    """Why this control cannot be on this server, empty where it can."""
    if version(evidence.server.version) >= _REACHES_PREFIXES:
        return "from SGLang 0.5.19 on a prefix does not stop the path"
    if evidence.server.disable_radix_cache:
        return "the radix cache is off, so nothing has a prefix"
    return ""


def tokens(visit: Visit) -> int:
    """What one trial takes, in prompt tokens."""
    return visit.size.tokens + 2 * min(COMPANION_TOKENS, visit.size.tokens)


def control(visit: Visit, place: int | None) -> tuple[Attempt, ...]:
    """Send pairs until one meets in a pass, or there is no point in sending more."""
    sent: list[Attempt] = []
    for _ in range(visit.plan.attempts):
        if visit.deadline.passed():
            break
        attempt = _pair(visit, place)
        sent.append(attempt)
        if attempt.answer != "answered" or not without_prefix(attempt):
            break
    return tuple(sent)


def _pair(visit: Visit, place: int | None) -> Attempt:
    key, rid = new_rid("fastfill-companion-"), new_rid(RID_PREFIX)
    cached = prompt(visit.pool, min(COMPANION_TOKENS, visit.size.tokens))
    fresh = prompt(visit.pool, visit.size.tokens)
    attempt = Attempt(rid=rid, dp=place, prompt_tokens=len(fresh), answer="answered")
    try:
        with withdrawing(visit.server, f"{key}-0", f"{key}-1", rid):
            first = visit.server.generate(
                _body([f"{key}-0"], [cached], [key], place), timeout_s=max(0.1, visit.deadline.remaining())
            )
            second = visit.server.generate(
                _body([f"{key}-1", rid], [cached, fresh], [key, rid], place),
                timeout_s=max(0.1, visit.deadline.remaining()),
            )
    except TimedOut as error:
        return attempt.model_copy(update={"answer": "timed_out", "detail": error.what})
    if refusal := first.refusal or second.refusal:
        return attempt.model_copy(update={"answer": "refused", "detail": refusal})
    return with_passes(attempt, visit.server, visit.deadline)


def _body(rids: list[str], prompts: list[list[int]], keys: list[str], place: int | None) -> dict[str, Any]:
    body: dict[str, Any] = {
        "rid": rids,
        "input_ids": prompts,
        "extra_key": keys,
        "sampling_params": {"max_new_tokens": 1, "temperature": 0.0},
        "stream": False,
    }
    return body if place is None else {**body, "routed_dp_rank": place}
