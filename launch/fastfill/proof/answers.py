"""Does the server answer the same on the fast path as on the fallback? What was seen, and what it amounts to."""

from __future__ import annotations

from typing import Literal, NamedTuple

from fastfill.proof.sent import Attempt
from fastfill.proof.wire import Wire


class AnswersEvidence(Wire):
    """What was seen of the server's answers."""

    def sent(self) -> tuple[Attempt, ...]:
        """The requests of the comparison, in order."""
        return ()


class Answers(NamedTuple):
    """How the comparison ended; ``finding`` names what makes the verdict WRONG, empty otherwise."""

    status: Literal["right", "wrong", "not_checked"]
    detail: str
    finding: str = ""


def judge_answers(answers: AnswersEvidence | None) -> Answers:
    """Judge the answers; None where none were compared."""
    return Answers("not_checked", "no answers were compared")
