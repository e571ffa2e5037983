"""Where requests come from: a trace at its own times, or clients that send the next one when the last is answered."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Protocol

from fastfill.planning.request import Request

NEVER = float("inf")


class Source(Protocol):
    """Gives requests in the order of their arrival."""

    def due(self) -> float:
        """When the next one arrives, in seconds; ``NEVER`` if none is known to."""
        ...

    def take(self) -> Request:
        """The next one."""
        ...

    def answered(self, time: float) -> None:
        """A request has been answered in full."""
        ...


class Open:
    """A trace: requests arrive when they did.

    Args:
        requests: In order of arrival; read one ahead.
    """

    def __init__(self, requests: Iterator[Request]) -> None:
        self._requests = requests
        self._next = next(requests, None)

    def due(self) -> float:
        """See :class:`Source`."""
        return self._next.arrival if self._next is not None else NEVER

    def take(self) -> Request:
        """See :class:`Source`."""
        taken = self._next
        assert taken is not None
        self._next = next(self._requests, None)
        return taken

    def answered(self, time: float) -> None:
        """Nobody waits for it."""


class OneByOne:
    """What is sent at once reaches the scheduler one after another: the first of it is prefilled alone.

    Args:
        source: When requests are sent.
        seconds: Between two that reach the scheduler.
    """

    def __init__(self, source: Source, seconds: float) -> None:
        self._source = source
        self._seconds = seconds
        self._last = -NEVER

    def due(self) -> float:
        """See :class:`Source`."""
        return max(self._source.due(), self._last + self._seconds)

    def take(self) -> Request:
        """See :class:`Source`."""
        self._last = self.due()
        return self._source.take()

    def answered(self, time: float) -> None:
        """See :class:`Source`."""
        self._source.answered(time)


class Closed:
    """So many clients, each of which sends its next request when its last one has been answered.

    Args:
        requests: Their arrival times are not used.
        clients: How many send at once.
    """

    def __init__(self, requests: Iterator[Request], clients: int) -> None:
        self._requests = requests
        self._next = next(requests, None)
        self._ready = [0.0] * clients

    def due(self) -> float:
        """See :class:`Source`."""
        return self._ready[0] if self._next is not None and self._ready else NEVER

    def take(self) -> Request:
        """See :class:`Source`."""
        taken = self._next
        assert taken is not None
        taken.arrival = heapq.heappop(self._ready)
        self._next = next(self._requests, None)
        return taken

    def answered(self, time: float) -> None:
        """Its client is free again."""
        heapq.heappush(self._ready, time)
