"""Measures the time model's constants on a live server, with a handful of prompts of its own."""

from __future__ import annotations

import concurrent.futures
import itertools
import random
import statistics
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from fastfill.errors import NotReadyError
from fastfill.planning.constants import Decode, Prefill, fitted
from fastfill.planning.figures import SCHEMA
from fastfill.planning.ingest import Reached, spacing
from fastfill.proof.server import Server
from fastfill.proof.wire import Pass
from sglang_fastfill.conditions import FALLBACK_RID_PREFIX

_pick = random.SystemRandom()
_REPEATS = 5
_TOGETHER = (4, 8)
_SHORTEST = 64
_ROWS = (1, 4, 16)
_SHORT, _LONG = 8, 40
_CONTEXTS = (32, 1024)
_AT_ONCE = 16
_TINY = 16
_BEHIND_S = 0.03
_CLOCKS = 1.02
"""Two clocks' readings of one time may differ so much."""


@dataclass(slots=True)
class Measured:
    """What was measured, in seconds.

    Attributes:
        prefills: Prompts of many lengths, alone and together, each the median of its repetitions.
        decodes: Sequences at once, tokens in the cache of all together, and one decode step's time, likewise.
        bursts: The passes that prompts sent at once were prefilled in, each time.
        paths_told: Whether the server told which path each prompt took.
    """

    prefills: list[Prefill] = field(default_factory=list)
    decodes: list[Decode] = field(default_factory=list)
    bursts: list[list[Reached]] = field(default_factory=list)
    paths_told: bool = True


class Calibration:
    """One run against one server.

    Args:
        say: Is told what is being measured.
    """

    def __init__(self, server: Server, say: Callable[[str], None], timeout_s: float = 120.0) -> None:
        self._server = server
        self._say = say
        self._timeout = timeout_s
        self._facts = server.facts()
        self._ids = server.ordinary_ids()
        self._told = True

    def run(self) -> dict[str, Any]:
        """Measure and fit; returns the document that ``plan --calibration`` reads."""
        measured = Measured()
        longest = self._longest()
        sizes = [n for n in (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536) if n < longest][-8:]
        self._prefill(sizes[0], "", 1)
        for size in sizes:
            # Short prompts in one pass have a long one's tokens without its attention: that tells the two apart.
            for prompts in (1, *(n for n in _TOGETHER if size // n >= _SHORTEST)):
                for prefix in ("", FALLBACK_RID_PREFIX) if prompts == 1 else ("",):
                    self._add(measured, size, prompts, prefix)
        if self._blocking():
            # Where passes follow each other without overlap, the server's own clock tells what each takes.
            self._say(f"{_TOGETHER[-1]} prompts, {sizes[-1] * _TOGETHER[-1]} tokens in several passes")
            for _ in range(_REPEATS):
                measured.prefills += self._inside(sizes[-1], _TOGETHER[-1])
            for size in sizes[: len(sizes) // 2 + 1]:
                self._say(f"1 prompt, {size} tokens, behind one of {sizes[-1]}")
                for _ in range(_REPEATS):
                    measured.prefills += self._behind(size, sizes[-1])
        for rows in _ROWS:
            for context in _CONTEXTS:
                if context + _LONG < longest and rows <= self._places():
                    self._say(f"decode: {rows} sequences of {context} tokens")
                    step = statistics.median(self._decode(rows, context) for _ in range(_REPEATS))
                    measured.decodes.append(Decode(rows, rows * (context + (_SHORT + _LONG) // 2), step))
        together = min(_AT_ONCE, min(longest, int(self._server.info.get("max_prefill_tokens") or longest)) // _TINY)
        self._say(f"{together} prompts sent at once")
        measured.bursts = [self._burst(together) for _ in range(_REPEATS)]
        measured.paths_told = self._told
        return document(measured, self._facts.model_path, self._server.url, self._facts.version, self._blocking())

    def _blocking(self) -> bool:
        return self._server.info.get("device") == "cpu"

    def _longest(self) -> int:
        """Tokens of the longest prompt that runs in one pass, and that the server takes."""
        chunk = self._facts.chunked_prefill_size
        bounds = [self._facts.max_req_input_len or 1 << 30, chunk if chunk and chunk > 0 else 1 << 30]
        bounds.append(int(self._server.info.get("max_total_num_tokens") or 1 << 30) // max(_ROWS))
        return max(min(bounds) - _LONG - 16, 256)

    def _places(self) -> int:
        """Requests that run at once."""
        return int(self._server.info.get("max_running_requests") or 1 << 30)

    def _send(self, size: int, new: int, rids: list[str]) -> float:
        """Seconds until every prompt of ``size`` tokens is answered; several are one request to the server."""
        prompts = [_pick.choices(self._ids, k=size) for _ in rids]
        body = {
            "input_ids": prompts if len(rids) > 1 else prompts[0],
            "rid": rids if len(rids) > 1 else rids[0],
            "sampling_params": {"temperature": 0, "max_new_tokens": new, "ignore_eos": True},
        }
        began = time.perf_counter()
        answer = self._server.generate(body, timeout_s=self._timeout)
        spent = time.perf_counter() - began
        if answer.refusal:
            raise NotReadyError(
                f"the server refused a prompt of {size} tokens: {answer.refusal}",
                where=self._server.url,
                next_step="look at its log, then try again",
            )
        return spent

    def _add(self, measured: Measured, size: int, prompts: int, prefix: str) -> None:
        """The one of the median time; none where the fallback was asked for and not taken."""
        self._say(f"{prompts} prompt{'s' if prompts > 1 else ''}, {size} tokens")
        found = sorted((self._prefill(size, prefix, prompts) for _ in range(_REPEATS)), key=lambda one: one.seconds)
        typical = found[len(found) // 2]
        if not (prefix and typical.fast):
            measured.prefills.append(typical)

    def _prefill(self, size: int, prefix: str, prompts: int) -> Prefill:
        """Prompts of ``size`` tokens together until their only token, in one pass."""
        rids = [f"{prefix}plan-{uuid.uuid4().hex}" for _ in range(prompts)]
        each = size // prompts
        spent = self._send(each, 1, rids)
        found = self._passes(rids)
        fast, slow = (sum(pairs) for pairs in zip(*map(_pairs, found), strict=True)) if found else (0.0, 0.0)
        if sum(sum(one.extend) for one in found) != each * prompts:
            # No ring of passes, or others' requests in ours.
            self._told = False
            pairs = prompts * each * each / 2
            fast, slow = (0.0, pairs) if prefix else (pairs, 0.0)
        return Prefill(each * prompts, fast, slow, spent)

    def _inside(self, size: int, prompts: int) -> list[Prefill]:
        """Passes that follow each other at once, each from the end of the one before it, by the server's clock."""
        rids = [f"plan-{uuid.uuid4().hex}" for _ in range(prompts)]
        self._send(size, 1, rids)
        return self._following(rids)

    def _behind(self, size: int, longest: int) -> list[Prefill]:
        """A prompt that arrives while a longer one is prefilled, by the server's clock; none where it came later."""
        rids = [f"plan-{uuid.uuid4().hex}" for _ in range(2)]
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            first = pool.submit(self._send, longest, 1, rids[:1])
            time.sleep(_BEHIND_S)
            waited = self._send(size, 1, rids[1:])
            first.result()
        # Had it come after the longer one's end, the server would have been idle for a part of the time between.
        return [one for one in self._following(rids) if one.tokens == size and one.seconds <= waited * _CLOCKS]

    def _following(self, rids: list[str]) -> list[Prefill]:
        """The passes of these requests but the first, each of which began when the one before it ended."""
        found = self._passes(rids)
        return [
            Prefill(sum(one.extend), *_pairs(one), one.time - before.time, client=False)
            for before, one in itertools.pairwise(found)
            if one.number == before.number + 1 and one.time > before.time
        ]

    def _burst(self, prompts: int) -> list[Reached]:
        """The passes of short prompts that so many connections sent at the same time; none without a ring."""
        rids = [f"plan-{uuid.uuid4().hex}" for _ in range(prompts)]
        with concurrent.futures.ThreadPoolExecutor(prompts) as pool:
            list(pool.map(lambda rid: self._send(_TINY, 1, [rid]), rids))
        return [Reached(one.time, len(one.extend), sum(one.extend)) for one in self._passes(rids)]

    def _passes(self, rids: list[str]) -> list[Pass]:
        """The prefill passes of one rank in which one of the requests was, in order."""
        found: dict[int, Pass] = {}
        for rid in rids:
            passes = self._server.passes(rid)
            for rank in passes.ranks[:1] if passes is not None else ():
                found |= {one.number: one for one in rank.passes if not one.draft and one.is_prefill}
        return [found[number] for number in sorted(found)]

    def _decode(self, rows: int, context: int) -> float:
        """One step's time: a long answer less a short one, of ``rows`` prompts at once."""
        spent = []
        with concurrent.futures.ThreadPoolExecutor(rows) as pool:
            for new in (_SHORT, _LONG):
                began = time.perf_counter()
                list(pool.map(lambda _, new=new: self._send(context, new, [f"plan-{uuid.uuid4().hex}"]), range(rows)))
                spent.append(time.perf_counter() - began)
        return max((spent[1] - spent[0]) / (_LONG - _SHORT), 1e-6)


def _pairs(one: Pass) -> tuple[float, float]:
    """A pass's query-key pairs on the fast path and off it."""
    pairs = sum(e * (p + e / 2) for p, e in zip(one.prefix, one.extend, strict=True))
    fast = bool(one.calls) and all(call.kernel == "asm" and call.head_dim == 256 for call in one.calls)
    return (pairs, 0.0) if fast else (0.0, pairs)


def document(measured: Measured, model: str, url: str, sglang: str, blocking: bool) -> dict[str, Any]:
    """Fit the constants, and say how well they fit."""
    found = fitted(measured.prefills, measured.decodes, blocking=blocking)
    notes = list(found.notes)
    apart = spacing(measured.bursts, found.seconds["pass"], found.seconds["token"])
    if apart is None:
        notes.append("how far apart requests reach the scheduler that are sent at once could not be told: taken as 0")
    if not measured.paths_told:
        notes.append("the server does not tell which path a prompt took: it is taken to be the fast one")
    return {
        "schema": SCHEMA,
        "url": url,
        "model": model,
        "sglang": sglang,
        "measured": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "blocking": blocking,
        "seconds": {**found.seconds, "ingest": apart or 0.0},
        "fit": {"mean_error": round(found.mean_error, 4), "worst_error": round(found.worst_error, 4)},
        "notes": notes,
        "prefills": [
            {"tokens": one.tokens, "client": one.client, "fast": round(one.share, 4), "seconds": round(one.seconds, 6)}
            for one in measured.prefills
        ],
        "decodes": [{**one._asdict(), "seconds": round(one.seconds, 6)} for one in measured.decodes],
    }
