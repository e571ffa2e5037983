"""Whether a trace's timestamps are in one unit: seconds and milliseconds mixed up, or not those that are assumed.

Only what nothing else explains is an error: a log that was put together from several files begins again at 0, and a
burst at the start of a trace is followed by gaps a thousand times as long. The rest is a doubt, and is printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

_LEAST, _MOST = 300.0, 3000.0
_GREAT = 5000.0
_ENOUGH = 5
_BUSY_TOKENS_S = 1e6
_IDLE_S = 600.0


class Step(NamedTuple):
    """A timestamp a thousand times as small, or as large, as the one before it.

    Attributes:
        place: How many timestamps are before it.
        line: Its line.
        before: The timestamp before it.
        at: Itself.
    """

    place: int
    line: int
    before: float
    at: float


def step(place: int, line: int, before: float, at: float) -> Step | None:
    """A step between two neighbours, if it is one."""
    small, large = min(before, at), max(before, at)
    return Step(place, line, before, at) if small > 0 and small * _LEAST < large < small * _MOST else None


def mixed(times: Sequence[float], steps: Sequence[Step]) -> Step | None:
    """The step at which the unit changes; None where there is another way to read it.

    Args:
        times: Every timestamp, in the file's order and unit.
        steps: Of neighbours, in order.
    """
    falls = [one for one in steps if one.at < one.before and one.before > _GREAT]
    for fall in falls:
        if any(one.place > fall.place and one.at > fall.before / 2 and one.at > one.before for one in steps):
            return fall
        before, after = times[: fall.place], times[fall.place :]
        if len(after) < _ENOUGH or len(before) < _ENOUGH:
            if 900 * fall.at < fall.before < 1100 * fall.at:
                return fall
            continue
        # Another file's beginning goes on as the first file did; the same log in seconds goes on a thousandth as fast.
        slower = _pace(before) / max(_pace(after), 1e-9)
        if _LEAST / 10 < slower < _MOST * 10:
            return fall
    return None


def doubts(times: Sequence[float], steps: Sequence[Step], tokens: int, scale: float) -> list[str]:
    """What speaks against the unit that is assumed, in words.

    Args:
        tokens: Of all prompts together.
        scale: Seconds in one unit.
    """
    found = []
    for rise in (one for one in steps if one.at > one.before):
        if rise.place >= _ENOUGH and len(times) - rise.place >= _ENOUGH:
            found.append(
                f"line {rise.line}: the time jumps from {rise.before:g} to {rise.at:g}: seconds before it, and "
                "milliseconds after? taken as it stands"
            )
            break
    span = (max(times) - min(times)) * scale if times else 0.0
    other = "s" if scale < 1 else "ms"
    if len(times) >= 2 * _ENOUGH and span > 0:
        rate, gap = tokens / span, span / (len(times) - 1)
        if scale < 1 and rate > _BUSY_TOKENS_S:
            found.append(f"{rate:.0f} prompt tokens a second: are the timestamps seconds? (--assume time_unit={other})")
        elif scale >= 1 and gap > _IDLE_S:
            found.append(
                f"a request every {gap:.0f} s: are the timestamps milliseconds? (leave out --assume time_unit=s)"
            )
    return found


def _pace(times: Sequence[float]) -> float:
    """Units a request, on average."""
    return (max(times) - min(times)) / max(len(times) - 1, 1)
