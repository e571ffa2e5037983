"""SIGTERM and a closed terminal end a benchmark as Ctrl-C does: the kill switch is put back, servers are ended."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def orderly() -> Iterator[None]:
    """Within it, SIGTERM and SIGHUP raise KeyboardInterrupt in the main thread."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
