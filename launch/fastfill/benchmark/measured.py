"""What one run showed: the benchmark's own line, and the rise of the server's counters beside it."""

from __future__ import annotations

import json
import math
from typing import Any

from pydantic import BaseModel, ConfigDict

from fastfill.benchmark.grid import Cell
from fastfill.proof.counters import TOKENS, Counters
from fastfill.proof.coverage import coverage
from fastfill.proof.tally import KERNEL
from sglang_fastfill.conditions import HEAD_DIM

METRICS = {
    "median_ttft_ms": True,
    "mean_ttft_ms": True,
    "median_itl_ms": True,
    "median_tpot_ms": True,
    "median_e2e_latency_ms": True,
    "mean_e2e_latency_ms": True,
    "total_throughput": False,
    "output_throughput": False,
}
"""The metrics of a run, by SGLang's name, and whether less is better."""
STRANGERS = 0.02
"""Prefill of others, as a share of a run's own, from which on it is not this run that was measured."""


class Run(BaseModel):
    """One run of the load.

    Attributes:
        metrics: By SGLang's name, times in ms, throughput in tokens/s.
        ttft_ms: Of each request.
        completed: Requests that were answered, of ``asked``.
        calls: Fast-path calls, all ranks together; None where the server has no counters, and so for the next three.
        tokens, work: Coverage in tokens and in attention work, 0 to 1.
        stopped: Share of the attention work that each reason kept off the path.
        strangers: Prefill tokens that were not this run's, as a share of its own.
    """

    model_config = ConfigDict(frozen=True)

    metrics: dict[str, float]
    ttft_ms: tuple[float, ...]
    completed: int
    asked: int
    calls: int | None = None
    tokens: float | None = None
    work: float | None = None
    stopped: dict[str, float] = {}
    strangers: float | None = None


def read(raw: str, cell: Cell) -> Run:
    """A raw file of one run.

    Raises:
        ValueError: It is not what the benchmark writes.
    """
    lines = raw.splitlines()
    if len(lines) != 1:
        raise ValueError(f"{len(lines)} lines, not one")
    document: Any = json.loads(lines[0])
    try:
        metrics = {name: float(document[name]) for name in METRICS if document.get(name) is not None}
        errors, times, lengths = document["errors"], document["ttfts"], document["input_lens"]
        completed = int(document["completed"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not the benchmark's document: {error!r}") from error
    if any(not math.isfinite(value) for value in metrics.values()):
        raise ValueError("a metric is not finite")
    if completed and set(lengths) != {cell.isl}:
        raise ValueError(f"prompts of {sorted(set(lengths))} tokens, not {cell.isl}")
    answered = tuple(1000.0 * float(time) for time, error in zip(times, errors, strict=True) if not error)
    return Run(metrics=metrics, ttft_ms=answered, completed=completed, asked=cell.prompts)


def with_counters(run: Run, before: Counters, after: Counters, cell: Cell, *, warm_up: int = 1) -> Run:
    """Add what the server counted meanwhile."""
    rose = rise(before, after)
    covered = coverage(rose)
    calls = sum(
        count
        for counts in rose.calls().values()
        for key, count in counts.items()
        if key.kernel == KERNEL and key.head_dim == HEAD_DIM and not key.draft
    )
    ranks = {tuple(sample.labels.get(f"{kind}_rank", "") for kind in ("pp", "tp")) for sample in after.samples
             if sample.name == TOKENS}  # fmt: skip
    seen = sum(rose.totals(TOKENS).values()) / max(1, len(ranks))
    own = (run.asked + warm_up) * cell.isl
    return run.model_copy(
        update={
            "calls": calls,
            "tokens": covered.tokens,
            "work": covered.attention_work,
            "stopped": covered.stopped,
            "strangers": max(0.0, seen - own) / own,
        }
    )


def rise(before: Counters, after: Counters) -> Counters:
    """The samples of ``after`` less those of ``before``."""
    earlier = {(one.name, tuple(sorted(one.labels.items()))): one.value for one in before.samples}
    return Counters(
        samples=tuple(
            one.model_copy(
                update={"value": one.value - earlier.get((one.name, tuple(sorted(one.labels.items()))), 0.0)}
            )
            for one in after.samples
        )
    )


def objections(run: Run, *, fires: bool) -> list[str]:
    """Why this run says nothing about its arm; empty where nothing stands against it."""
    found = []
    if run.completed < run.asked:
        found.append(f"{run.asked - run.completed} of {run.asked} requests failed")
    if run.calls is None:
        found.append("the server has no counters: whether the path fired is not known")
    elif fires and run.calls == 0:
        found.append("the arm that should take the fast path never did")
    elif not fires and run.calls > 0:
        found.append(f"the arm that should not take the fast path did, {run.calls} times")
    if run.strangers is not None and run.strangers > STRANGERS:
        found.append("other clients used the server meanwhile")
    return found
