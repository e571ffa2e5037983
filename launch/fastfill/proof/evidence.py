"""All that a proof saw, and nothing that it concluded: the verdict is a function of this alone."""

from __future__ import annotations

from typing import Literal

from fastfill.proof.counters import Counters
from fastfill.proof.wire import RankPasses, ServerFacts, Status, Wire


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


class Evidence(Wire):
    """What was read and sent, in the order of its fields.

    Attributes:
        status_before: None when the server has no plugin.
        counters_before: None when the server runs without metrics.
        config_layers: Full-attention layers by the model's own config.json; None where it could not be read.
        not_sent: Why no probe could be sent, empty otherwise (longer than the context).
        attempts: The probes, in order.
        controls: The negative controls, in order; empty where none was sent.
        no_control: Why no control was sent.
        deadline_s: How long the proof was given, in seconds.
        deadline_passed: Whether that ran out.
    """

    url: str
    server: ServerFacts
    status_before: Status | None
    counters_before: Counters | None = None
    config_layers: int | None = None
    not_sent: str = ""
    attempts: tuple[Attempt, ...] = ()
    controls: tuple[Attempt, ...] = ()
    no_control: str = ""
    status_after: Status | None = None
    counters_after: Counters | None = None
    deadline_s: float = 0.0
    deadline_passed: bool = False
