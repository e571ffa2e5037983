"""How far apart requests reach the scheduler that are sent at once: told by the passes that prefilled them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple


class Reached(NamedTuple):
    """A pass of a burst.

    Attributes:
        ended: In seconds, by the server's clock; the scheduler made the next pass of what had reached it by then.
        requests: In it.
        tokens: Of all of them.
    """

    ended: float
    requests: int
    tokens: int


def spacing(bursts: Sequence[Sequence[Reached]], pass_: float, token: float) -> float | None:
    """Seconds between two requests, the median over the bursts.

    What reached the scheduler while a pass ran is in the next one. The last pass is left out: all that was left of the
    burst may have been there long before it began.

    Args:
        bursts: The passes of each burst, in order.
        pass_: A pass's own seconds, and
        token: those of each token: the first pass began so long before its end.

    Returns:
        None where no burst was prefilled in three passes: the requests came too quickly to tell.
    """
    found = []
    for passes in bursts:
        if len(passes) < 3:
            continue
        began = passes[0].ended - pass_ - token * passes[0].tokens
        decided = passes[-3].ended
        there = sum(one.requests for one in passes[:-1])
        # Between the arrival of the last one that was there and of the next: half a gap after the last one.
        found.append((decided - began) / (there - 0.5))
    return statistics.median(found) if found else None
