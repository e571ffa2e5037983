"""What share of the server's prefill took the path since it started, in tokens and in attention work."""

from __future__ import annotations

from typing import NamedTuple

from fastfill.proof.counters import TOKENS, WORK, Counters
from fastfill.proof.evidence import Evidence
from fastfill.proof.load import measure
from fastfill.proof.tally import KERNEL


class Coverage(NamedTuple):
    """Shares between 0 and 1, None where nothing was prefilled; ``stopped`` is each reason's share of the work."""

    tokens: float | None
    attention_work: float | None
    stopped: dict[str, float]


def coverage(counters: Counters | None) -> Coverage:
    """The shares over all ranks and the server's whole life."""
    if counters is None:
        return Coverage(None, None, {})
    work = _by_reason(counters.totals(WORK))
    whole = sum(work.values())
    stopped = {reason: value / whole for reason, value in work.items() if reason and whole > 0 and value > 0}
    return Coverage(
        _share(_by_reason(counters.totals(TOKENS))),
        _share(work),
        dict(sorted(stopped.items(), key=lambda item: -item[1])),
    )


def too_little(evidence: Evidence) -> tuple[str, str] | None:
    """Whether the path's share of the attention work misses what the operator wants: a finding and the detail.

    The prompts that were sent at once tell, where some were; else the server's whole life does.
    """
    if evidence.min_coverage is None:
        return None
    if evidence.load is not None:
        share, of = measure(evidence.load).attention_work, f"of {evidence.load.prompts} prompts at once"
    else:
        share, of = coverage(evidence.counters_after).attention_work, "since the server started"
    if share is None:
        return "coverage_unknown", f"no share of the attention work is known {of}"
    if share < evidence.min_coverage:
        return "coverage_low", f"{share:.1%} of the attention work {of}, not {evidence.min_coverage:.1%}"
    return None


def _by_reason(totals: dict[tuple[str, str], float]) -> dict[str, float]:
    found: dict[str, float] = {}
    for (kernel, reason), value in totals.items():
        # Without a reason and on another kernel it is not the path, whatever the gate believed.
        key = reason or ("" if kernel == KERNEL else "unexplained")
        found[key] = found.get(key, 0.0) + value
    return found


def _share(by_reason: dict[str, float]) -> float | None:
    whole = sum(by_reason.values())
    return by_reason.get("", 0.0) / whole if whole > 0 else None
