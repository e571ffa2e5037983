"""Counts what one forward pass did, for the witness to collect when the pass ends.

Plain dictionaries and integers: a labelled Prometheus increment costs 2 microseconds, too much for every layer of every
prefill. A scheduler runs one forward pass at a time, in one thread.
"""

from __future__ import annotations

Call = tuple[str, str, int]
"""Function that SGLang called, kernel that it reached, head dim."""


class Ledger:
    """The open pass's counts."""

    __slots__ = ("calls", "fired", "kernel", "open", "reasons")

    def __init__(self) -> None:
        self.open = False
        self.kernel: str | None = None
        self.calls: dict[Call, int] = {}
        self.reasons: dict[str, int] = {}
        self.fired = 0

    def begin(self) -> None:
        """Start counting a pass."""
        self.open = True
        self.kernel = None
        self.calls = {}
        self.reasons = {}
        self.fired = 0

    def end(self) -> tuple[dict[Call, int], dict[str, int]]:
        """Stop counting; returns attention calls and the gate's reasons, both per layer call."""
        self.open = False
        return self.calls, self.reasons

    def skip(self, reason: str) -> None:
        """One layer call that the gate kept off the fast path."""
        if self.open:
            self.reasons[reason] = self.reasons.get(reason, 0) + 1

    def call(self, function: str, kernel: str, head_dim: int) -> None:
        """One attention call that returned."""
        key = (function, kernel, head_dim)
        self.calls[key] = self.calls.get(key, 0) + 1


LEDGER = Ledger()
