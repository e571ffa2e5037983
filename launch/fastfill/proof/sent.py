"""One request of a proof, as it was sent and as the ranks remember it."""

from __future__ import annotations

from typing import Literal

from fastfill.proof.wire import RankPasses, Wire


class Attempt(Wire):
    """One request that was sent, and the passes that each rank remembers of it.

    Attributes:
        dp: The data-parallel rank it was routed to; None on a server without data parallelism.
        prompt_tokens: Its length in tokens, as sent.
        answer: Whether the server answered it, refused it, or took longer than there was time.
        detail: The refusal in the server's words.
    """

    rid: str
    dp: int | None = None
    prompt_tokens: int
    answer: Literal["answered", "refused", "timed_out"]
    detail: str = ""
    ranks: tuple[RankPasses, ...] = ()
