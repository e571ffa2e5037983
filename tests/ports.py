"""Ports for servers of the tests."""

from __future__ import annotations

import os
import socket

FIRST, LAST = 20000, 31000
"""Below the range from which the kernel serves outgoing connections: one of those must not take a port in between."""

_next = FIRST + os.getpid() * 37 % (LAST - FIRST)


def free_port() -> int:
    """A port of 127.0.0.1 that nothing listens on, another one at each call."""
    global _next
    while True:
        _next = _next + 1 if _next < LAST else FIRST
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", _next))
            except OSError:
                continue
            return _next
