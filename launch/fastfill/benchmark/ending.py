"""How a benchmark ends: on SIGTERM as on Ctrl-C, with everything closed, and with the first error told."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from fastfill import output
from fastfill.errors import FastfillError


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


@contextmanager
def closing(*ends: Callable[[], None]) -> Iterator[None]:
    """On the way out every end is run, whatever became of the others.

    The first error is the one that leaves: that a dead server cannot be tidied up must not hide how it died. Later
    ones are only told.
    """
    first: BaseException | None = None
    try:
        yield
    except BaseException as error:
        first = error
    for end in ends:
        try:
            end()
        except BaseException as error:
            if first is None:
                first = error
            else:
                _tell(error)
    if first is not None:
        raise first


def _tell(error: BaseException) -> None:
    lines = error.lines() if isinstance(error, FastfillError) else [f"error: {error!r}"]
    output.talk("\n".join(["bench: and while it was ended:", *lines]))
