"""Whether a canary that was proven also serves well: its real traffic beside that of the others. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from fastfill.fleet import numbers

TTFT = "sglang:time_to_first_token_seconds"


@dataclass(frozen=True, slots=True)
class Limits:
    """Attributes:
    requests: So many must have been served before anything is said.
    errors: The share of aborted requests that is too much, on top of the others' share.
    ttft: TTFT p90 may be so many times the others'.
    ttft_slack: Seconds that are never too much: buckets are coarse.
    coverage: Coverage may be so much lower than the others', in points from 0 to 1.
    """

    requests: int = 500
    errors: float = 0.005
    ttft: float = 1.5
    ttft_slack: float = 0.1
    coverage: float = 0.10


@dataclass(frozen=True, slots=True)
class Served:
    """What one server, or several together, did in a time. None: not exported, or nothing was observed."""

    requests: float
    aborted: float
    ttft_p90: float | None
    coverage: float | None
    saturated: float | None

    @property
    def error_share(self) -> float:
        """Aborted requests among all."""
        return self.aborted / self.requests if self.requests else 0.0


def served(before: str, after: str) -> Served:
    """What a server did between two readings of its /metrics.

    A counter that fell was reset by a restart: then everything since the restart counts.
    """
    if _grew(before, after, "sglang:num_requests_total") is None:
        before = ""

    def grew(name: str, **labels: str) -> float | None:
        return _grew(before, after, name, **labels)

    work = grew("fastfill:prefill_attention_work_total")
    fired = grew("fastfill:prefill_attention_work_total", reason="")
    return Served(
        requests=grew("sglang:num_requests_total") or 0.0,
        aborted=grew("sglang:num_aborted_requests_total") or 0.0,
        ttft_p90=numbers.quantile(after, TTFT, 0.9, before),
        coverage=(fired or 0.0) / work if work else None,
        saturated=grew("fastfill:saturated_total"),
    )


def _grew(before: str, after: str, name: str, **labels: str) -> float | None:
    now, then = numbers.total(after, name, **labels), numbers.total(before, name, **labels)
    if now is None:
        return 0.0 if name == "sglang:num_requests_total" else None
    return now - (then or 0.0) if now >= (then or 0.0) else None


def judge(canary: Served, others: list[Served], limits: Limits, *, elapsed_s: float, soak_s: float) -> dict[str, Any]:
    """What the canary's traffic says.

    Args:
        canary: What it served since its proof.
        others: The same time on the servers of the last release; empty where there are none.
        limits: How much worse it may be.
        elapsed_s: Since its proof.
        soak_s: How long it must serve.

    Returns:
        ``state``: ``good``, ``bad`` or ``not_yet``; ``why``: one line a finding; ``canary``: its numbers.
    """
    why = []
    base = sum(one.aborted for one in others) / max(1.0, sum(one.requests for one in others))
    # A single aborted request among a few is a client that went away, no rate.
    if canary.aborted > max(1.0, (base + limits.errors) * canary.requests):
        why.append(f"{canary.error_share:.2%} of its requests were aborted, {base:.2%} of the others'")
    slowest = [one.ttft_p90 for one in others if one.ttft_p90 is not None]
    if canary.ttft_p90 is not None and slowest and canary.requests >= min(limits.requests, 50):
        allowed = max(slowest) * limits.ttft + limits.ttft_slack
        if canary.ttft_p90 > allowed:
            why.append(f"TTFT p90 is {canary.ttft_p90:.2f} s, at most {allowed:.2f} s are allowed beside the others")
    covered = [one.coverage for one in others if one.coverage is not None]
    if canary.coverage is not None and covered and canary.requests >= min(limits.requests, 50):
        floor = min(covered) - limits.coverage
        if canary.coverage < floor:
            why.append(f"coverage is {canary.coverage:.0%}, the others have at least {min(covered):.0%}")
    shares = [one.saturated / one.requests for one in others if one.saturated is not None and one.requests]
    if canary.saturated and shares and canary.saturated / max(1.0, canary.requests) > 10 * max(shares) + 1:
        why.append(f"{canary.saturated:.0f} elements of k and v were beyond the fp8 range or NaN")
    state = "bad" if why else "good" if canary.requests >= limits.requests and elapsed_s >= soak_s else "not_yet"
    if state == "not_yet":
        why.append(f"{canary.requests:.0f} of {limits.requests} requests in {elapsed_s:.0f} of {soak_s:.0f} s")
    return {"state": state, "why": why, "canary": asdict(canary)}
