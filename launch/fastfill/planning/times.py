"""What a pass of the model costs in time: linear work, attention work at the rate of the path taken, decode."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fastfill.planning.request import Batch

_ENDLESS = 1 << 40
PAIRS = "query-key pairs of a causal prefill, ((p+e)^2 - p^2)/2 summed over the sequences"


@dataclass(frozen=True, slots=True)
class Times:
    """Constants of one GPU, model and parallel layout, in seconds.

    Attributes:
        pass_: A prefill pass's own cost.
        token: Linear work of one prefill token.
        pair_fast: Attention work on the fast path, per query-key pair, all layers together.
        pair_slow: The same on the fallback.
        decode: A decode step's own cost.
        row: One more sequence in a decode step.
        cached: One token of context in a decode step, summed over the sequences.
        answer: From the end of a pass until the client has the token.
        ingest: Between two requests' reaching the scheduler that were sent at once.
    """

    pass_: float
    token: float
    pair_fast: float
    pair_slow: float
    decode: float
    row: float
    cached: float
    answer: float = 0.0
    ingest: float = 0.0

    def prefill(self, tokens: int, pairs: float, fast: bool, rows: int, context: int) -> float:
        """Seconds of one prefill pass, decode rows in it included."""
        seconds = self.pass_ + self.token * tokens + (self.pair_fast if fast else self.pair_slow) * pairs
        return seconds + (self.row * rows + self.cached * context if rows else 0.0)

    def decoding(self, batch: Batch) -> float:
        """Seconds of one decode step."""
        return self.decode + self.row * batch.rows + self.cached * batch.context

    def within(self, rows: int, context: int, seconds: float) -> int:
        """How many whole decode steps, as in :meth:`steps`, take less than ``seconds``; 0 if not even one does."""
        if seconds <= 0:
            return 0
        growth = self.cached * rows / 2
        first = self.decode + self.row * rows + self.cached * context - growth
        if growth > 0:
            # growth n^2 + first n = seconds, in the form that loses no digits where growth is tiny.
            guess = int(2 * seconds / (first + math.sqrt(first * first + 4 * growth * seconds)))
        else:
            guess = int(seconds / first) if first > 0 else _ENDLESS
            if guess >= _ENDLESS:
                return _ENDLESS
        while guess > 0 and self.steps(rows, context, guess) >= seconds:
            guess -= 1
        while self.steps(rows, context, guess + 1) < seconds:
            guess += 1
        return guess

    def steps(self, rows: int, context: int, count: int) -> float:
        """Seconds of ``count`` decode steps of the same rows, the first of which sees ``context`` tokens."""
        return count * (self.decode + self.row * rows + self.cached * (context + rows * (count - 1) / 2))
