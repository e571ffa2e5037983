"""What a pass of the model costs in time: linear work, attention work at the rate of the path taken, decode."""

from __future__ import annotations

from dataclasses import dataclass

from fastfill.planning.request import Batch

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
    """

    pass_: float
    token: float
    pair_fast: float
    pair_slow: float
    decode: float
    row: float
    cached: float
    answer: float = 0.0

    def prefill(self, tokens: int, pairs: float, fast: bool, rows: int, context: int) -> float:
        """Seconds of one prefill pass, decode rows in it included."""
        seconds = self.pass_ + self.token * tokens + (self.pair_fast if fast else self.pair_slow) * pairs
        return seconds + (self.row * rows + self.cached * context if rows else 0.0)

    def decoding(self, batch: Batch) -> float:
        """Seconds of one decode step."""
        return self.decode + self.row * batch.rows + self.cached * batch.context

    def steps(self, rows: int, context: int, count: int) -> float:
        """Seconds of ``count`` decode steps of the same rows, the first of which sees ``context`` tokens."""
        return count * (self.decode + self.row * rows + self.cached * (context + rows * (count - 1) / 2))
