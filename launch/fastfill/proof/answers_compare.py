"""How far two answers to one prompt are apart: the k best log probabilities of each generated token, side by side.

Greedy answers part at the first near-tie; from there on they answer different texts, so the place of the parting is the
last that is compared.
"""

from __future__ import annotations

from typing import NamedTuple

from fastfill.proof.answers_seen import Guesses, Said


class Difference(NamedTuple):
    """The comparison of two answers.

    Attributes:
        places: Generated tokens that were compared.
        agreed: Places where both had the same most likely token.
        mean: Mean |Δlogprob| over all tokens of all places, in nats; 0 where nothing could be compared.
        worst: The largest of them.
        nan_fast: Places of the fast side with a value that is not finite.
        nan_fallback: The same of the fallback.
    """

    places: int
    agreed: int
    mean: float
    worst: float
    nan_fast: int
    nan_fallback: int


def difference(fast: Said, fallback: Said) -> Difference:
    """Compare two answers to the same prompt, up to and with the place where they part."""
    gaps: list[float] = []
    places = agreed = nan_fast = nan_fallback = 0
    for index, (ours, theirs) in enumerate(zip(fast.top, fallback.top, strict=False)):
        places += 1
        bad_fast, bad_fallback = _not_finite(ours), _not_finite(theirs)
        nan_fast += bad_fast
        nan_fallback += bad_fallback
        if not bad_fast and not bad_fallback:
            gaps += _gaps(ours, theirs)
            agreed += _best(ours) == _best(theirs)
        if fast.tokens[index : index + 1] != fallback.tokens[index : index + 1]:
            break
    mean = sum(gaps) / len(gaps) if gaps else 0.0
    return Difference(places, agreed, mean, max(gaps, default=0.0), nan_fast, nan_fallback)


def together(parts: list[Difference]) -> Difference:
    """Several comparisons as one; the mean is over places."""
    places = sum(part.places for part in parts)
    return Difference(
        places,
        sum(part.agreed for part in parts),
        sum(part.mean * part.places for part in parts) / places if places else 0.0,
        max((part.worst for part in parts), default=0.0),
        sum(part.nan_fast for part in parts),
        sum(part.nan_fallback for part in parts),
    )


def _not_finite(guesses: Guesses) -> bool:
    """SGLang replaces NaN by -1e30 before it samples: logits of nothing but NaN come out as one and the same value."""
    values = [value for _, value in guesses]
    return not values or any(value is None for value in values) or (len(values) > 1 and len(set(values)) == 1)


def _best(guesses: Guesses) -> int:
    return max(guesses, key=lambda guess: guess[1] if guess[1] is not None else float("-inf"))[0]


def _gaps(ours: Guesses, theirs: Guesses) -> list[float]:
    """|Δ| of each token that either side names; a token that one side leaves out is at most its least likely one."""
    left, right = dict(ours), dict(theirs)
    floors = (
        min(value for value in left.values() if value is not None),
        min(value for value in right.values() if value is not None),
    )
    gaps = []
    for token in left.keys() | right.keys():
        mine, other = left.get(token), right.get(token)
        if mine is not None and other is not None:
            gaps.append(abs(mine - other))
        elif mine is not None:
            gaps.append(max(0.0, mine - floors[1]))
        elif other is not None:
            gaps.append(max(0.0, other - floors[0]))
    return gaps
