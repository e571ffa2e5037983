"""The time model's constants from durations that were measured: on a server by ``calibrate``, or in a benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fastfill.planning.figures import table
from fastfill.planning.fit import fit

_LENGTHS = 3
_ALIKE = 0.05


class Prefill(NamedTuple):
    """The time of one pass, by a client from sending its prompts until their first tokens, or by the server.

    Attributes:
        tokens: Of all its prompts together.
        fast: Query-key pairs on the fast path.
        slow: Query-key pairs off it.
        seconds: Measured.
        client: Whether a client measured: the way to it is in the time then.
    """

    tokens: int
    fast: float
    slow: float
    seconds: float
    client: bool = True

    @property
    def share(self) -> float:
        """Share of the attention work on the fast path, 0 to 1."""
        return self.fast / (self.fast + self.slow)


def alone(tokens: int, share: float, seconds: float) -> Prefill:
    """One prompt, prefilled in one pass with that share of its work on the fast path."""
    pairs = tokens * tokens / 2
    return Prefill(tokens, pairs * share, pairs * (1.0 - share), seconds)


class Decode(NamedTuple):
    """One decode step: sequences, tokens in the cache of all together, and its time in seconds."""

    rows: float
    context: float
    seconds: float


class Fitted(NamedTuple):
    """What explains the measurements best.

    Attributes:
        seconds: The constants, by their names in ``plan calibrate``'s document.
        mean_error, worst_error: Of the prefill times, relative.
        notes: What could not be measured, and what stands in for it.
    """

    seconds: dict[str, float]
    mean_error: float
    worst_error: float
    notes: list[str]


def fitted(prefills: Sequence[Prefill], decodes: Sequence[Decode], *, blocking: bool) -> Fitted:
    """Fit every constant.

    Args:
        prefills: Of at least two sizes: one size does not tell linear work from attention work.
        blocking: The scheduler waits for a pass, as on a CPU.
    """
    decode, row, cached = fit([(1.0, one.rows, one.context) for one in decodes], [one.seconds for one in decodes])
    # A pass of one token costs what a decode step does, where nothing tells more of it.
    least = decode + row
    known = least if len({one.tokens for one in prefills}) < _LENGTHS else 0.0
    shares = [one.share for one in prefills]
    ratio = table()["path"]["fast_ratio"] if max(shares) - min(shares) < _ALIKE else 0.0
    rows = [(*_work(one, ratio), *(() if known else (1.0, float(one.client)))) for one in prefills]
    token, fast, *more = fit(rows, [max(one.seconds - known, one.seconds * 1e-3) for one in prefills])
    slow = fast * ratio if ratio else more.pop(0)
    own, way = (known, 0.0) if known else more
    if all(one.client for one in prefills):
        own, way = min(least, own), own - min(least, own)
    notes = []
    if ratio:
        path = "fast path" if min(shares) > 0.5 else "fallback"
        notes.append(f"every prompt took the {path}: the other's rate is by the published ratio, {ratio:g}")
    if known:
        notes.append("two prompt lengths only: a prefill pass is taken to cost by itself what a decode step does")
    # Where the scheduler waits for a pass, it tells the answer only after the next one, a decode step for nobody.
    answer = max(way - (least if blocking else 0.0), 0.0)
    seconds = {
        "pass": own,
        "token": token,
        "pair_fast": fast,
        "pair_slow": slow,
        "decode": decode,
        "row": row,
        "cached": cached,
        "answer": answer,
    }
    predicted = [
        own + (way if one.client else 0.0) + token * one.tokens + fast * one.fast + slow * one.slow for one in prefills
    ]
    errors = [abs(told - one.seconds) / one.seconds for told, one in zip(predicted, prefills, strict=True)]
    return Fitted(seconds, sum(errors) / len(errors), max(errors), notes)


def _work(one: Prefill, ratio: float) -> tuple[float, ...]:
    """Tokens, and pairs on the fast path and off it; with ``ratio``, those off it count so often as fast."""
    return (float(one.tokens), one.fast + ratio * one.slow) if ratio else (float(one.tokens), one.fast, one.slow)
