"""The probe: a long prompt that no cache can know, and the request that carries it."""

from __future__ import annotations

import random
import string
import uuid
from typing import Any, NamedTuple

from fastfill.proof.wire import ServerFacts, Status
from sglang_fastfill.conditions import FALLBACK_RID_PREFIX

RID_PREFIX = "fastfill-probe-"
CONTROL_RID_PREFIX = f"{FALLBACK_RID_PREFIX}probe-"
DEFAULT_TOKENS = 2048
SAMPLE_CHARACTERS = 4096
PLAIN_ENGLISH = "The gardener walked along the river in the morning. The baker read a long letter after lunch."
# Byte-pair vocabularies keep their special tokens at the very start or at the end, never here.
ORDINARY_IDS = tuple(range(300, 1000))

_random = random.SystemRandom()


class Length(NamedTuple):
    """How long the probe is, in tokens, and why; ``refused`` is not empty where it cannot be sent."""

    tokens: int
    why: str
    refused: str = ""


def length(asked: int | None, facts: ServerFacts, status: Status | None) -> Length:
    """The probe's length: what was asked for, else as long as one pass of this server holds, up to 2048 tokens.

    Half the context at most, so that it fits beside other requests; no more than one chunk, so that a proof on an idle
    server is one pass.
    """
    limits = [rank.context_len for rank in (status.ranks if status else ()) if rank.context_len > 0]
    if facts.max_req_input_len:
        limits.append(facts.max_req_input_len)
    room = min(limits) - 2 if limits else None
    if asked is not None:
        if room is not None and asked > room:
            return Length(asked, "asked for", f"{asked} tokens were asked for and the context holds {room}")
        return Length(asked, "asked for")
    tokens, why = DEFAULT_TOKENS, "the default"
    if limits and min(limits) // 2 < tokens:
        tokens, why = min(limits) // 2, "half the context"
    chunk = facts.chunked_prefill_size
    if chunk is not None and 0 < chunk < tokens:
        tokens, why = chunk, "one chunk: --chunked-prefill-size"
    if tokens < 1:
        return Length(1, why, "the context has no room for a probe")
    return Length(tokens, why)


def sample_text(characters: int = SAMPLE_CHARACTERS) -> str:
    """Random words, for the server's tokenizer to turn into ids that are ordinary by construction."""
    alphabet = string.ascii_letters + string.digits + "     .,;:"
    return "".join(_random.choices(alphabet, k=characters))


def prompt(pool: tuple[int, ...], tokens: int) -> list[int]:
    """``tokens`` ids drawn from ``pool`` with the system's randomness."""
    return _random.choices(pool, k=tokens)


def new_rid(prefix: str = RID_PREFIX) -> str:
    """A request id that only this request has."""
    return prefix + uuid.uuid4().hex


def request(rid: str, input_ids: list[int], *, dp: int | None = None) -> dict[str, Any]:
    """The body of ``POST /generate``: one new token, a cache namespace of its own, one data-parallel rank if given."""
    body: dict[str, Any] = {
        "rid": rid,
        "input_ids": input_ids,
        "sampling_params": {"max_new_tokens": 1, "temperature": 0.0},
        "extra_key": rid,
        "stream": False,
    }
    if dp is not None:
        body["routed_dp_rank"] = dp
    return body
