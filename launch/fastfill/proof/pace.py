"""How much a server that takes traffic is asked: one hundredth of the prompt tokens that others send it."""

from __future__ import annotations

import time
from typing import NamedTuple

from fastfill.proof.server import Server
from fastfill.proof.transport import Deadline

SHARE = 0.01
WATCH_S = 3.0
"""How long the traffic is watched before anything is sent."""
SPACE_S = 10.0
"""The time between two requests, where the traffic allows one of a useful length."""
LEAST = 32
"""Tokens: a shorter prompt would be no long prompt."""
IDLE = 256
"""Tokens of a request to a server that nobody else uses."""


class Pace(NamedTuple):
    """The traffic, and what it allows.

    Attributes:
        traffic: Prompt tokens a second that the server took while it was watched.
        tokens: The length of a request.
        space_s: Seconds before each request, so that it stays at a hundredth.
    """

    traffic: float
    tokens: int
    space_s: float


def pace(traffic: float, most: int) -> Pace:
    """Requests as long as ten seconds' share of the traffic, 32 tokens to ``most``, and as far apart as that takes.

    Args:
        traffic: Prompt tokens a second.
        most: The longest request, in tokens.
    """
    share = traffic * SHARE
    if share <= 0:
        return Pace(0.0, min(most, IDLE), 0.0)
    tokens = max(min(int(share * SPACE_S), most), min(LEAST, most))
    return Pace(traffic, tokens, tokens / share)


def watch(server: Server, deadline: Deadline) -> float:
    """Prompt tokens a second, from SGLang's own counter over three seconds; 0 where it counts none."""
    # The time of both readings counts in: a slow answer must not make the traffic look denser than it is.
    start = time.monotonic()
    before = server.prompt_tokens()
    time.sleep(min(WATCH_S, deadline.remaining()))
    after, elapsed = server.prompt_tokens(), time.monotonic() - start
    return max(0.0, after - before) / elapsed if elapsed > 0 else 0.0
