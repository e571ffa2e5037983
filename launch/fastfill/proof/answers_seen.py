"""What was seen of the server's answers: the evidence, with nothing concluded."""

from __future__ import annotations

from typing import Literal

from fastfill.proof.sent import Attempt
from fastfill.proof.wire import Wire

Guesses = tuple[tuple[int, float | None], ...]
"""The most likely tokens of one place with their log probability in nats; None where it is not finite."""


class Said(Wire):
    """One request and its answer.

    Attributes:
        tokens: Generated token ids; empty where the answer was text.
        top: For each of them the most likely tokens at its place.
        text: The answer as text, where that was asked for.
    """

    attempt: Attempt
    tokens: tuple[int, ...] = ()
    top: tuple[Guesses, ...] = ()
    text: str = ""


class Pair(Wire):
    """The same prompt on both sides, each prefilled from token 0."""

    fast: Said
    fallback: Said


class Hidden(Wire):
    """A needle: where in the prompt it is (0 to 1), and what the answer must hold."""

    depth: float
    wanted: str


class Search(Wire):
    """A prompt that hides needles. The fallback is asked only where the fast side missed one.

    Attributes:
        kind: ``trained`` poses the task in the model's own token ids, ``words`` in plain words.
    """

    kind: Literal["trained", "words"]
    hidden: tuple[Hidden, ...]
    fast: Said
    fallback: Said | None = None

    def found(self, said: Said) -> tuple[bool, ...]:
        """For each needle whether this answer holds it."""
        if self.kind == "trained":
            return tuple(said.tokens[:1] == (int(one.wanted),) for one in self.hidden)
        return tuple(one.wanted in said.text for one in self.hidden)


class AnswersEvidence(Wire):
    """What was seen of the server's answers.

    Attributes:
        prompts: How many prompts were to be compared.
        pairs: The comparison of log probabilities.
        searches: The search for needles.
        spoiled: Requests that other traffic spoiled, so that they were sent again.
        cannot: Why nothing could be compared; empty where it could.
        no_search: Why no needles were searched; empty where they were.
    """

    prompts: int = 0
    pairs: tuple[Pair, ...] = ()
    searches: tuple[Search, ...] = ()
    spoiled: tuple[Attempt, ...] = ()
    cannot: str = ""
    no_search: str = ""

    def sent(self) -> tuple[Attempt, ...]:
        """The requests of the comparison, in order."""
        both = [said for pair in self.pairs for said in (pair.fast, pair.fallback)]
        both += [said for one in self.searches for said in (one.fast, one.fallback) if said is not None]
        return (*(said.attempt for said in both), *self.spoiled)
