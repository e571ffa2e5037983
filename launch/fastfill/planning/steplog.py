"""Replays what a real scheduler recorded of its steps, and compares the batches.

The lab's server writes the log (``FASTFILL_LAB_STEPS``): what had arrived and ended before each step, and the batch.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastfill.errors import UsageError
from fastfill.planning.request import Batch, Request
from fastfill.planning.rules import Rules, Settings, rules
from fastfill.planning.scheduler import Scheduler

Shape = tuple[str, tuple[tuple[tuple[str, int, int], int], ...]]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A step at which the model made another batch, saw another request end, or had other memory left.

    Attributes:
        step: The recorded step.
        what: ``batch``, ``ended`` (the requests whose end was noticed before) or ``free`` (tokens of the KV pool).
        real: What the server did.
        model: What the model did.
    """

    step: int
    what: str
    real: Any
    model: Any


@dataclass(slots=True)
class Comparison:
    """A replay beside its log.

    Attributes:
        batches: Recorded batches of any kind.
        prefills: Those that hold prefilled sequences.
        mismatches: Where the two differ, in order. After the first one they usually go on differing.
        requests: Requests in the log.
        names: Their ids.
        split: Prefilled sequences that were a part of a prompt.
        hits: Prefilled sequences with a prefix from the radix cache.
        retractions: How often the model took a running request's KV away.
    """

    batches: int = 0
    prefills: int = 0
    mismatches: list[Mismatch] = field(default_factory=list)
    requests: int = 0
    names: list[str] = field(default_factory=list)
    split: int = 0
    hits: int = 0
    retractions: int = 0


def read(file: Path) -> tuple[Rules, Settings, list[dict[str, Any]]]:
    """A log's settings and steps.

    Raises:
        UsageError: It is not such a log.
    """
    try:
        raw = file.read_bytes()
        text = (gzip.decompress(raw) if file.suffix == ".gz" else raw).decode()
        head, *lines = (json.loads(line) for line in text.splitlines())
        settings = Settings(
            chunk=head["chunk"],
            max_prefill=head["max_prefill"],
            page=head["page"],
            radix=head["radix"],
            mixed=head["mixed"],
            overlap=head["overlap"],
            max_running=head["max_running"],
            kv_tokens=head["kv_tokens"],
            hybrid=head["hybrid"],
            first_ratio=head["first_ratio"],
        )
        return rules(head["sglang"], gfx950=False), settings, lines
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"this is no log of a scheduler's steps: {error!r}", where=str(file)) from None


def replay(found: Rules, settings: Settings, lines: list[dict[str, Any]]) -> Comparison:
    """Step the model through a log."""
    scheduler = Scheduler(found, settings)
    comparison = Comparison()
    requests, names = _requests(lines)
    comparison.requests, comparison.names = len(requests), names
    last = -1
    for line in lines:
        # A step in which nothing happened is not in the log, but the server made it.
        if last >= 0 and line["step"] > last + 1 and scheduler.step() is not None:
            comparison.mismatches.append(Mismatch(last + 1, "batch", None, "a batch"))
        last = line["step"]
        ended = sorted(names[r.number] for r in scheduler.finished)
        scheduler.finished.clear()
        scheduler.answered.clear()
        real_ended = sorted(end["rid"] for end in line["ended"])
        if ended != real_ended:
            comparison.mismatches.append(Mismatch(last, "ended", real_ended, ended))
        free = scheduler.pool.free() * settings.page
        if free != line["free"]:
            comparison.mismatches.append(Mismatch(last, "free", line["free"], free))
        for arrival in line["arrived"]:
            scheduler.arrive(requests[arrival["rid"]])
        batch = scheduler.step()
        running = sorted(names[r.number] for r in scheduler.running)
        real = line["batch"]
        comparison.batches += real is not None
        if real is not None and real["kind"] != "decode":
            comparison.prefills += 1
        if batch is not None:
            comparison.split += sum(member[3] for member in batch.members)
            comparison.hits += sum(0 < m[1] == m[0].protected and m[1] + m[2] <= m[0].fill for m in batch.members)
        mine, theirs = _shape(batch, names, running), _real_shape(real)
        if mine != theirs:
            comparison.mismatches.append(Mismatch(last, "batch", theirs, mine))
    comparison.retractions = scheduler.retractions
    return comparison


def _requests(lines: list[dict[str, Any]]) -> tuple[dict[str, Request], list[str]]:
    ends = {end["rid"]: end for line in lines for end in line["ended"]}
    requests: dict[str, Request] = {}
    names: list[str] = []
    for arrival in _arrivals(lines):
        end = ends.get(arrival["rid"], {"out": 1 << 40, "key": ""})
        requests[arrival["rid"]] = Request(
            number=len(names),
            arrival=0.0,
            n_in=arrival["in"],
            n_out=end["out"],
            max_new=arrival["max_new"],
            ignore_eos=arrival["ignore_eos"],
            key=bytes.fromhex(arrival["key"]),
            full_key=bytes.fromhex(end["key"]),
        )
        names.append(arrival["rid"])
    return requests, names


def _arrivals(lines: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for line in lines:
        yield from line["arrived"]


def _shape(batch: Batch | None, names: list[str], running: list[str]) -> Shape | None:
    if batch is None:
        return None
    if batch.kind == "decode":
        return ("decode", tuple(((name, 0, 0), 1) for name in running))
    members = [(names[r.number], prefix, extend) for r, prefix, extend, _ in batch.members]
    members += [(names[r.number], prefix, 1) for r, prefix in batch.mixed]
    return (batch.kind, tuple(sorted(Counter(members).items())))


def _real_shape(batch: dict[str, Any] | None) -> Shape | None:
    if batch is None:
        return None
    if batch["kind"] == "decode":
        return ("decode", tuple(((name, 0, 0), 1) for name in batch["members"]))
    return (batch["kind"], tuple(sorted(Counter((m[0], m[1], m[2]) for m in batch["members"]).items())))
