"""How far apart requests reach the scheduler that are sent at once: told by the passes that prefilled them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

_WAITED = 1.1


class Reached(NamedTuple):
    """A pass of a burst.

    Attributes:
        ended: In seconds, by the server's clock.
        requests: In it.
        tokens: Of all of them.
    """

    ended: float
    requests: int
    tokens: int


def spacing(bursts: Sequence[Sequence[Reached]], pass_: float, token: float) -> float | None:
    """Seconds between two requests, the median over the bursts.

    What reached the scheduler while the first pass ran is in the second one; where that is the last, all of the burst
    may have been there long before, and this is the most that it can be. Where the scheduler waited for the second
    request, the passes are as far apart as the requests.

    Args:
        bursts: The passes of each burst, in order.
        pass_: A pass's own seconds, and
        token: those of each token: the first pass took so long.

    Returns:
        None where no burst was prefilled in two passes: the requests came too quickly to tell.
    """
    found = []
    for passes in bursts:
        if len(passes) < 2:
            continue
        first, second = passes[:2]
        took, apart = pass_ + token * first.tokens, second.ended - first.ended
        there = first.requests + second.requests
        if there == 2 and apart > took * _WAITED:
            found.append(apart)
        else:
            # It ended between the arrival of the last one that was there and of the next: half a gap after the last.
            found.append(took / (there - 0.5))
    return statistics.median(found) if found else None
