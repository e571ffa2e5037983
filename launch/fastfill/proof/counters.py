"""SGLang's /metrics, the part that our plugin writes: parse, add up, and subtract two readings."""

from __future__ import annotations

import math
from collections import Counter
from typing import NamedTuple

from fastfill.proof.wire import Rank, Wire

PREFIX = "fastfill:"
CALLS = "fastfill:prefill_attention_calls_total"
SKIPS = "fastfill:prefill_skips_total"
TOKENS = "fastfill:prefill_tokens_total"
WORK = "fastfill:prefill_attention_work_total"


class Sample(Wire):
    """One line of the exposition format."""

    name: str
    labels: dict[str, str]
    value: float


class CallKey(NamedTuple):
    """What a call counter is told apart by."""

    fn: str
    kernel: str
    head_dim: int
    draft: bool


def _number(text: str | None) -> int:
    try:
        return int(text or 0)
    except ValueError:
        return 0


def _rank(labels: dict[str, str]) -> Rank:
    return Rank(pp=_number(labels.get("pp_rank")), dp=_number(labels.get("dp_rank")), tp=_number(labels.get("tp_rank")))


class Counters(Wire):
    """One reading of our counters; only samples whose name starts with ``fastfill:`` are kept."""

    samples: tuple[Sample, ...] = ()

    def calls(self) -> dict[Rank, Counter[CallKey]]:
        """Attention calls a rank since the server started."""
        found: dict[Rank, Counter[CallKey]] = {}
        for sample in self._named(CALLS):
            labels = sample.labels
            key = CallKey(
                labels.get("fn", ""),
                labels.get("kernel", "unknown"),
                _number(labels.get("head_dim")),
                labels.get("draft", "").lower() in ("1", "true", "yes"),
            )
            found.setdefault(_rank(labels), Counter())[key] += int(sample.value)
        return found

    def skips(self) -> dict[Rank, Counter[str]]:
        """Attention-layer calls a rank that left the path, by reason."""
        found: dict[Rank, Counter[str]] = {}
        for sample in self._named(SKIPS):
            found.setdefault(_rank(sample.labels), Counter())[sample.labels.get("reason", "")] += int(sample.value)
        return found

    def totals(self, name: str) -> dict[tuple[str, str], float]:
        """A coverage counter summed over all ranks, by (kernel, reason); the reason of the fast path is empty."""
        found: dict[tuple[str, str], float] = {}
        for sample in self._named(name):
            key = sample.labels.get("kernel", ""), sample.labels.get("reason", "")
            found[key] = found.get(key, 0.0) + sample.value
        return found

    def exposition(self) -> str:
        """The samples in the Prometheus text format; :func:`parse` gives them back."""
        from prometheus_client.core import Metric
        from prometheus_client.exposition import generate_latest

        families: dict[str, Metric] = {}
        for sample in self.samples:
            families.setdefault(sample.name, Metric(sample.name, "recorded by fastfill prove", "untyped")).add_sample(
                sample.name, sample.labels, sample.value
            )

        class Samples:
            def collect(self) -> list[Metric]:
                return list(families.values())

        return generate_latest(Samples()).decode()

    def _named(self, name: str) -> list[Sample]:
        return [sample for sample in self.samples if sample.name == name]


def parse(text: str) -> Counters:
    """Our samples in a Prometheus text exposition.

    Raises:
        ValueError: The text is not in that format, or one of our counters is no number.
    """
    from prometheus_client.parser import text_string_to_metric_families

    samples = []
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if not sample.name.startswith(PREFIX):
                continue
            if not math.isfinite(sample.value):
                raise ValueError(f"{sample.name} is {sample.value}")
            samples.append(Sample(name=sample.name, labels=dict(sample.labels), value=float(sample.value)))
    return Counters(samples=tuple(samples))


def total(text: str, name: str) -> float:
    """A counter of anybody's in a Prometheus text exposition, summed over its labels; 0 where it is not there.

    Raises:
        ValueError: The text is not in that format.
    """
    from prometheus_client.parser import text_string_to_metric_families

    families = text_string_to_metric_families(text)
    found = (sample.value for family in families for sample in family.samples if sample.name == name)
    return sum(value for value in found if math.isfinite(value))


def rise(before: Counters, after: Counters) -> dict[Rank, Counter[CallKey]]:
    """Attention calls a rank between two readings; negative where a counter went backwards."""
    earlier = before.calls()
    later = after.calls()
    difference: dict[Rank, Counter[CallKey]] = {}
    for rank in earlier.keys() | later.keys():
        counts = Counter(later.get(rank, Counter()))
        counts.subtract(earlier.get(rank, Counter()))
        difference[rank] = counts
    return difference
