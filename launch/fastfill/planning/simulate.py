"""Runs requests through the scheduler's model with a clock, and counts what comes out."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from fastfill.planning.coverage import Coverage, Gate
from fastfill.planning.request import Batch
from fastfill.planning.rules import Rules, Settings
from fastfill.planning.scheduler import Scheduler
from fastfill.planning.source import NEVER, OneByOne, Source
from fastfill.planning.spread import Spread
from fastfill.planning.times import Times

Watch = Callable[[float, float, Batch, str], None]


class Refused(NamedTuple):
    """A request that the server would refuse.

    Attributes:
        number: Its place in the trace.
        tokens: Its prompt.
    """

    number: int
    tokens: int


@dataclass(slots=True)
class Outcome:
    """What a run gave.

    Attributes:
        coverage: By tokens and attention work.
        ttft: Time to the first token of each request, in seconds, in order of answering.
        itl: Time between tokens.
        seconds: From the first arrival to the last token.
        requests: Answered in full.
        tokens_in: Of their prompts.
        tokens_out: Of their answers.
        largest: Tokens of the largest prefill batch.
        kv_peak: The most tokens in the KV pool of one rank at once, without what could be evicted.
        retractions: How often a running request lost its KV and waited again.
        hit_tokens: Prompt tokens that were found in the radix cache.
        refused: Longer than the context or the pool allows.
        aborted: No memory was left for them even alone.
        cut_short: Answered from a part of their prompt only: the rest was never prefilled (see ``admission.Pass``).
    """

    coverage: Coverage = field(default_factory=Coverage)
    ttft: array[float] = field(default_factory=lambda: array("d"))
    itl: Spread = field(default_factory=Spread)
    seconds: float = 0.0
    requests: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    largest: int = 0
    kv_peak: int = 0
    retractions: int = 0
    hit_tokens: int = 0
    refused: list[Refused] = field(default_factory=list)
    aborted: int = 0
    cut_short: int = 0


class Simulation:
    """One candidate's run.

    Args:
        ranks: Schedulers that step together: data-parallel ranks of attention; requests go round them in turn.
        blocking: A pass is over before the scheduler goes on (a CPU); else the next batch is decided while it runs.
        context: The longest prompt and answer that are served; None for no bound.
    """

    def __init__(
        self,
        rules: Rules,
        settings: Settings,
        times: Times,
        gate: Gate,
        *,
        ranks: int = 1,
        blocking: bool = False,
        context: int | None = None,
        watch: Watch | None = None,
    ) -> None:
        self.schedulers = [Scheduler(rules, settings) for _ in range(ranks)]
        self._times = times
        self._gate = gate
        self._blocking = blocking or not settings.overlap
        self._most = min(context or 1 << 60, settings.kv_tokens - settings.page)
        self._watch = watch
        self._overlap = settings.overlap
        self._turn = 0
        self._last_token = [NEVER] * ranks
        self._fresh: list[list[float]] = [[] for _ in range(ranks)]
        self.outcome = Outcome()

    def run(self, source: Source) -> Outcome:
        """Until every request is answered."""
        if self._times.ingest:
            source = OneByOne(source, self._times.ingest)
        schedulers = self.schedulers
        start = now = free = source.due() if source.due() != NEVER else 0.0
        stuck = 0
        alone = schedulers[0] if len(schedulers) == 1 else None
        blocking, overlap = self._blocking, self._overlap
        while True:
            while source.due() <= now:
                self._arrive(source)
            before = [scheduler.last for scheduler in schedulers]
            batches = [scheduler.step() for scheduler in schedulers]
            ended, began = free, free if free > now else now
            seconds = self._cost(batches, began)
            if seconds:
                free = began + seconds
            if blocking:
                ended = free
            if ended > now:
                now = ended
            self._notice(source, now, before if overlap else batches)
            if seconds:
                stuck = 0
                alike = alone.steps_alike() if alone is not None else self._alike()
                if alike > 1:
                    now, free = self._skip(alike, source.due(), now, free)
                continue
            stuck += 1
            if stuck > 1 or all(scheduler.idle for scheduler in schedulers):
                if source.due() == NEVER:
                    break
                now = free = max(source.due(), now)
                self._last_token = [NEVER] * len(schedulers)
        return self._close(start, now)

    def _alike(self) -> int:
        """Steps that decode the same requests on every rank that has any."""
        return min((s.steps_alike() for s in self.schedulers if not s.idle), default=0)

    def _arrive(self, source: Source) -> None:
        request = source.take()
        if request.n_in + 1 > self._most:
            self.outcome.refused.append(Refused(request.number, request.n_in))
            source.answered(request.arrival)
            return
        page = self.schedulers[0].settings.page
        room = self._most - -(-request.n_in // page) * page - 1
        request.max_new = max(1, min(request.max_new, room))
        request.n_out = min(request.n_out, request.max_new)
        self.schedulers[self._turn % len(self.schedulers)].arrive(request)
        self._turn += 1

    def _cost(self, batches: list[Batch | None], began: float) -> float:
        """Seconds of the step: ranks wait for the slowest."""
        longest = 0.0
        times = self._times
        for batch in batches:
            if batch is None:
                continue
            if batch.kind == "decode":
                longest = max(longest, times.decoding(batch))
                continue
            tokens, work = batch.rows, 0.0
            for _, prefix, extend, _ in batch.members:
                tokens += extend
                work += extend * (prefix + extend * 0.5)
            for _, prefix in batch.mixed:
                work += prefix + 0.5
            reason = self._gate.reason(batch, tokens)
            self.outcome.coverage.add(reason, tokens, work)
            if tokens > self.outcome.largest:
                self.outcome.largest = tokens
            seconds = times.prefill(tokens, work, not reason, batch.rows, batch.context)
            if self._watch is not None:
                self._watch(began, seconds, batch, reason)
            if seconds > longest:
                longest = seconds
        return longest

    def _notice(self, source: Source, now: float, batches: list[Batch | None]) -> None:
        """Tokens that have come: first ones, later ones, and ends."""
        outcome, seen = self.outcome, now + self._times.answer
        for rank, scheduler in enumerate(self.schedulers):
            batch = batches[rank]
            if batch is not None and batch.rows:
                fresh = self._fresh[rank]
                last = self._last_token[rank]
                if last != NEVER and batch.rows > len(fresh):
                    outcome.itl.add(now - last, batch.rows - len(fresh))
                if fresh:
                    for first in fresh:
                        outcome.itl.add(now - first)
                    fresh.clear()
                self._last_token[rank] = now
            if scheduler.answered:
                for request in scheduler.answered:
                    request.first = seen
                    outcome.ttft.append(seen - request.arrival)
                    outcome.hit_tokens += request.found
                    if request.n_out > 1:
                        self._fresh[rank].append(now)
                scheduler.answered.clear()
            if scheduler.finished:
                for request in scheduler.finished:
                    outcome.requests += 1
                    outcome.tokens_in += request.n_in
                    outcome.tokens_out += request.n_out
                    source.answered(seen)
                scheduler.finished.clear()
            if scheduler.aborted:
                for _ in scheduler.aborted:
                    outcome.aborted += 1
                    source.answered(seen)
                scheduler.aborted.clear()

    def _skip(self, most: int, due: float, now: float, free: float) -> tuple[float, float]:
        """Do decode steps that nothing interrupts all at once; returns the clock and when the last of them ends."""
        busy = [(s.pool.running, s.pool.tokens + s.pool.running) for s in self.schedulers if not s.idle]
        times = self._times
        late = 1 if self._blocking else 2
        if due != NEVER:
            # A step is decided when the one before it ends, with overlap one earlier: so many are decided anyhow.
            most = min(most, *(late + times.within(rows, context, due - free) for rows, context in busy))
        if most < 2 or free >= due:
            return now, free
        spans = [(times.steps(rows, context, most - 1), times.steps(rows, context, most)) for rows, context in busy]
        began, ends = now, free + max(whole for _, whole in spans)
        now = ends if self._blocking else free + max(less for less, _ in spans)
        for rank, scheduler in enumerate(self.schedulers):
            if scheduler.idle:
                continue
            rows = scheduler.pool.running
            scheduler.skip(most)
            last = self._last_token[rank] if self._last_token[rank] != NEVER else began
            self.outcome.itl.add((now - last) / most, most * rows)
            self._last_token[rank] = now
        return now, ends

    def _close(self, start: float, now: float) -> Outcome:
        outcome = self.outcome
        outcome.seconds = max(now - start, 0.0)
        outcome.kv_peak = max(s.pool.peak * s.settings.page for s in self.schedulers)
        outcome.retractions = sum(s.retractions for s in self.schedulers)
        for scheduler in self.schedulers:
            outcome.refused += [Refused(request.number, request.n_in) for request in scheduler.waiting]
        outcome.cut_short = sum(s.cut_short for s in self.schedulers)
        return outcome
