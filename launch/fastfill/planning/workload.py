"""A workload in one line instead of a trace: ``isl=60000,osl=600,conc=16[,cached=0.3][,requests=160]``."""

from __future__ import annotations

from fastfill.errors import UsageError
from fastfill.planning.trace import Trace

_KEYS = ("isl", "osl", "conc", "cached", "requests")
_BLOCK = 64


def parse(text: str) -> Trace:
    """The requests of a closed loop: so many clients, prompts and answers of one length.

    Raises:
        UsageError: A key is unknown, missing, or its value makes no sense.
    """
    values: dict[str, float] = {}
    for part in text.split(","):
        key, equals, value = part.strip().partition("=")
        try:
            if key not in _KEYS or not equals:
                raise ValueError
            values[key] = float(value)
        except ValueError:
            raise UsageError(
                f"{part.strip()!r} is no part of a workload",
                where=f"--workload {text}",
                next_step=f"write --workload isl=60000,osl=600,conc=16 (keys: {', '.join(_KEYS)})",
            ) from None
    for key in ("isl", "osl", "conc"):
        if values.get(key, 0) < 1 or values[key] != int(values[key]):
            raise UsageError(f"{key} must be a whole number of at least 1", where=f"--workload {text}")
    cached = values.get("cached", 0.0)
    if not 0 <= cached < 1:
        raise UsageError("cached is a share: at least 0, less than 1", where=f"--workload {text}")
    isl, osl, clients = int(values["isl"]), int(values["osl"]), int(values["conc"])
    count = int(values.get("requests", max(10 * clients, 100)))
    if count < 1:
        raise UsageError("requests must be at least 1", where=f"--workload {text}")
    trace = Trace("a workload", ["arrival times"], clients=clients, block=_BLOCK)
    common = int(isl * cached) // _BLOCK
    for number in range(count):
        trace.add(float("nan"), isl, osl, osl, 0)
        own = (number + 1) << 20
        blocks = isl // _BLOCK
        trace.add_hashes([*range(common), *range(own, own + blocks - common)])
    return trace
