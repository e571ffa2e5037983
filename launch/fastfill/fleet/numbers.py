"""What a server's /metrics say about its load and its answers. Pure; reads Prometheus' text format."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_LINE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Sample(NamedTuple):
    """One line."""

    name: str
    labels: dict[str, str]
    value: float


def samples(text: str) -> Iterator[Sample]:
    """The samples of an exposition; what is no sample is passed over."""
    for line in text.splitlines():
        found = _LINE.match(line)
        if found is None:
            continue
        try:
            yield Sample(found[1], dict(_LABEL.findall(found[2] or "")), float(found[3]))
        except ValueError:
            continue


def total(text: str, name: str, **labels: str) -> float | None:
    """The sum over all ranks, None where the server does not export it."""
    found = [
        sample.value
        for sample in samples(text)
        if sample.name == name and all(sample.labels.get(key) == value for key, value in labels.items())
    ]
    return sum(found) if found else None


def load(text: str) -> float | None:
    """Requests that run or wait, None where the server does not say.

    Each rank reports the same requests, so the largest counts, not the sum.
    """
    by_rank: dict[str, float] = {}
    seen = False
    for sample in samples(text):
        if sample.name in ("sglang:num_running_reqs", "sglang:num_queue_reqs"):
            seen = True
            rank = sample.labels.get("tp_rank", "") + "/" + sample.labels.get("dp_rank", "")
            by_rank[rank] = by_rank.get(rank, 0.0) + sample.value
    return max(by_rank.values()) if seen else None


def quantile(text: str, name: str, share: float, before: str = "") -> float | None:
    """A quantile of a histogram, as an upper bound: the first bucket that holds it.

    Args:
        text: The exposition.
        name: The histogram, without ``_bucket``.
        share: 0 to 1.
        before: An earlier exposition of the same server: only what came after it counts.

    Returns:
        Seconds (infinity where only the last bucket holds it), None where nothing was observed.
    """
    now, then = _buckets(text, name), _buckets(before, name)
    counts = {bound: count - then.get(bound, 0.0) for bound, count in now.items()}
    observed = counts.get(float("inf"), 0.0)
    if observed <= 0:
        return None
    for bound in sorted(counts):
        if counts[bound] >= share * observed:
            return bound
    return float("inf")


def _buckets(text: str, name: str) -> dict[float, float]:
    found: dict[float, float] = {}
    for sample in samples(text):
        if sample.name == f"{name}_bucket" and "le" in sample.labels:
            bound = float(sample.labels["le"])
            found[bound] = found.get(bound, 0.0) + sample.value
    return found
