"""One line on stderr that says what is going on and for how long."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from fastfill import output

_QUIET_SECONDS = 15.0


class Progress:
    """On a terminal one line that is rewritten; elsewhere a line every 15 seconds."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._start = time.monotonic()
        self._said = self._start
        self._live = output.is_terminal()
        self._width = 0

    def __enter__(self) -> Progress:
        return self

    def show(self, detail: str = "") -> None:
        """Say where it is now; cheap to call often."""
        now = time.monotonic()
        text = f"{self._what} ... {now - self._start:.0f} s" + (f" ({detail})" if detail else "")
        if self._live:
            text = text[:110]
            sys.stderr.write("\r" + text.ljust(self._width))
            sys.stderr.flush()
            self._width = len(text)
        elif now - self._said >= _QUIET_SECONDS:
            self._said = now
            output.talk(text)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live and self._width:
            sys.stderr.write("\r" + " " * self._width + "\r")
            sys.stderr.flush()
