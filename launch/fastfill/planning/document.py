"""The document of ``fastfill plan --json``."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from fastfill.planning.candidate import Candidate
from fastfill.planning.evaluate import Objective, Tried
from fastfill.planning.figures import NOT_MEASURED, TimeModel
from fastfill.planning.trace import Trace
from sglang_fastfill.conditions import FLAG

SCHEMA: Literal["fastfill.plan/1"] = "fastfill.plan/1"


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class Percentiles(_Document):
    """In milliseconds; null where there is nothing to take them of."""

    p50: float | None
    p90: float | None
    p99: float | None


class Covered(_Document):
    """Shares on the fast path, 0 to 1; ``reasons``: the share of attention work that each condition keeps off it."""

    tokens: float
    attention_work: float
    reasons: dict[str, float]


class Row(_Document):
    """A candidate; numbers are null where it was not run. ``chunked_prefill_size`` is null when chunking is off.

    ``peak_tokens`` is the largest prefill pass, ``kv_peak_tokens`` the fullest pool of a rank.
    """

    chunked_prefill_size: int | None
    max_prefill_tokens: int
    radix: bool
    path: bool
    coverage: Covered | None = None
    ttft_ms: Percentiles | None = None
    itl_ms: Percentiles | None = None
    throughput_tps: float | None = None
    peak_tokens: int | None = None
    kv_peak_tokens: int | None = None
    kv_pool_tokens: int | None = None
    mem_fraction_static: float | None = None
    hit_tokens: int | None = None
    retractions: int | None = None
    unserved: int | None = None
    seconds: float | None = None
    refused: str = ""


class Recommended(_Document):
    """What to start the server with."""

    flags: list[str]
    env: dict[str, str]
    why: str


class TraceFacts(_Document):
    """What was planned for."""

    source: str
    format: str
    requests: int
    tokens_in: int
    tokens_out: int
    longest: int
    lacks: list[str]
    repairs: list[str]
    doubts: list[str] = []
    too_long: int


class TimeFacts(_Document):
    """The time model: where its constants come from, and what it may be taken for."""

    source: str
    measured: bool
    note: str
    seconds: dict[str, float]


class PlanDocument(_Document):
    """The whole answer."""

    schema_: Literal["fastfill.plan/1"] = Field(alias="schema")
    objective: Objective
    recommended: Recommended | None
    candidates: list[Row]
    trace: TraceFacts
    assumptions: dict[str, str]
    time_model: TimeFacts
    release: str
    not_modelled: list[str]


def document(
    *,
    trace: Trace,
    source: str,
    tried: list[Tried],
    chosen: Tried | None,
    why: str,
    env: dict[str, str],
    objective: Objective,
    assumptions: dict[str, str],
    times: TimeModel,
    release: str,
    not_modelled: list[str],
) -> PlanDocument:
    """Put an answer together."""
    ran = next((one.outcome for one in tried if one.outcome is not None), None)
    return PlanDocument(
        schema=SCHEMA,
        objective=objective,
        recommended=None if chosen is None else Recommended(flags=flags(chosen), env=variables(chosen, env), why=why),
        candidates=[_row(one) for one in tried],
        trace=TraceFacts(
            source=source,
            format=trace.format,
            requests=len(trace),
            tokens_in=sum(trace.n_in),
            tokens_out=sum(trace.n_out),
            longest=trace.longest(),
            lacks=trace.lacks,
            repairs=trace.repairs,
            doubts=trace.doubts,
            too_long=len(ran.refused) if ran else 0,
        ),
        assumptions=assumptions,
        time_model=TimeFacts(
            source=times.source,
            measured=times.measured,
            note="" if times.measured else NOT_MEASURED,
            seconds={
                name.rstrip("_"): getattr(times.times, name)
                for name in ("pass_", "token", "pair_fast", "pair_slow", "decode", "row", "cached", "answer", "ingest")
            },
        ),
        release=release,
        not_modelled=not_modelled,
    )


def flags(tried: Tried) -> list[str]:
    """A candidate's flags, with the memory fraction that its largest pass leaves."""
    words = tried.candidate.flags()
    if tried.memory is not None and tried.memory.fraction > 0:
        words += ["--mem-fraction-static", f"{tried.memory.fraction:.3f}"]
    return words


def variables(tried: Tried, env: dict[str, str]) -> dict[str, str]:
    """The server's environment for a candidate."""
    return {name: value for name, value in env.items() if tried.candidate.path or name != FLAG}


def _row(one: Tried) -> Row:
    candidate: Candidate = one.candidate
    row = Row(
        chunked_prefill_size=candidate.chunk if candidate.chunk > 0 else None,
        max_prefill_tokens=candidate.max_prefill,
        radix=candidate.radix,
        path=candidate.path,
        refused=one.refused,
        kv_pool_tokens=one.kv_tokens or None,
        mem_fraction_static=one.memory.fraction if one.memory else None,
    )
    outcome = one.outcome
    if outcome is None:
        return row
    covered = outcome.coverage
    row.coverage = Covered(
        tokens=round(covered.of_tokens, 6),
        attention_work=round(covered.of_work, 6),
        reasons={name: round(share, 6) for name, share in covered.reasons().items()},
    )
    row.ttft_ms = Percentiles(p50=_ms(one.ttft(0.5)), p90=_ms(one.ttft(0.9)), p99=_ms(one.ttft(0.99)))
    itl = outcome.itl
    row.itl_ms = Percentiles(p50=_ms(itl.at(0.5)), p90=_ms(itl.at(0.9)), p99=_ms(itl.at(0.99)))
    row.throughput_tps = round(one.throughput(), 1)
    row.peak_tokens = outcome.largest
    row.kv_peak_tokens = outcome.kv_peak
    row.hit_tokens = outcome.hit_tokens
    row.retractions = outcome.retractions
    row.unserved = len(outcome.refused) + outcome.aborted
    row.seconds = round(outcome.seconds, 3)
    return row


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e3, 3)
