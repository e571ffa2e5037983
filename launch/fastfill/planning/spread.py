"""Percentiles of very many durations in little memory: counted in bins that are 1 % apart."""

from __future__ import annotations

import math

_FINENESS = 100.0


class Spread:
    """Counts of durations, in seconds."""

    __slots__ = ("_bins", "count")

    def __init__(self) -> None:
        self._bins: dict[int, int] = {}
        self.count = 0

    def add(self, seconds: float, times: int = 1) -> None:
        """Count a duration."""
        place = round(math.log(seconds) * _FINENESS) if seconds > 1e-9 else -3000
        self._bins[place] = self._bins.get(place, 0) + times
        self.count += times

    def at(self, share: float) -> float | None:
        """The duration below which this share of them lies; None if there are none."""
        wanted = share * self.count
        seen = 0
        for place in sorted(self._bins):
            seen += self._bins[place]
            if seen >= wanted:
                return math.exp(place / _FINENESS)
        return None
