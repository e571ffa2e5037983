"""Measures the time model's constants on a live server, with a handful of prompts of its own."""

from __future__ import annotations

import concurrent.futures
import random
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from fastfill.errors import NotReadyError
from fastfill.planning.figures import SCHEMA, table
from fastfill.planning.fit import fit
from fastfill.proof.server import Server
from sglang_fastfill.conditions import FALLBACK_RID_PREFIX

_pick = random.SystemRandom()
_REPEATS = 3
_ROWS = (1, 2, 4, 8)
_SHORT, _LONG = 8, 40
_CONTEXTS = (32, 1024)


@dataclass(slots=True)
class Measured:
    """What was measured, in seconds.

    Attributes:
        prefills: Tokens of a prompt, whether it took the fast path, and the shortest time to one token of answer.
        decodes: Sequences at once, tokens in the cache of all together, and one decode step's time.
        paths_told: Whether the server told which path each prompt took.
    """

    prefills: list[tuple[int, bool, float]] = field(default_factory=list)
    decodes: list[tuple[int, int, float]] = field(default_factory=list)
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
        self._prefill(sizes[0], "")
        for size in sizes:
            self._say(f"prompts of {size} tokens")
            for prefix in ("", FALLBACK_RID_PREFIX):
                best = min((self._prefill(size, prefix) for _ in range(_REPEATS)), key=lambda found: found[1])
                if not prefix or not best[0]:
                    measured.prefills.append((size, best[0], best[1]))
        for rows in _ROWS:
            for context in _CONTEXTS:
                if context + _LONG < longest:
                    self._say(f"decode: {rows} sequences of {context} tokens")
                    step = min(self._decode(rows, context) for _ in range(_REPEATS))
                    measured.decodes.append((rows, rows * (context + (_SHORT + _LONG) // 2), step))
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

    def _send(self, size: int, new: int, rid: str) -> float:
        body = {
            "input_ids": _pick.choices(self._ids, k=size),
            "rid": rid,
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

    def _prefill(self, size: int, prefix: str) -> tuple[bool, float]:
        """Whether a prompt took the fast path, and the time until its only token."""
        rid = f"{prefix}plan-{uuid.uuid4().hex}"
        spent = self._send(size, 1, rid)
        passes = self._server.passes(rid)
        found = [one for rank in passes.ranks for one in rank.passes] if passes is not None else []
        if not found:
            self._told = False
            return not prefix, spent
        calls = [call for one in found for call in one.calls]
        return bool(calls) and all(call.kernel == "asm" and call.head_dim == 256 for call in calls), spent

    def _decode(self, rows: int, context: int) -> float:
        """One step's time: a long answer less a short one, of ``rows`` prompts at once."""
        spent = []
        with concurrent.futures.ThreadPoolExecutor(rows) as pool:
            for new in (_SHORT, _LONG):
                began = time.perf_counter()
                list(pool.map(lambda _, new=new: self._send(context, new, f"plan-{uuid.uuid4().hex}"), range(rows)))
                spent.append(time.perf_counter() - began)
        return max((spent[1] - spent[0]) / (_LONG - _SHORT), 1e-6)


def document(measured: Measured, model: str, url: str, sglang: str, blocking: bool) -> dict[str, Any]:
    """Fit the constants, and say how well they fit."""
    decode, row, cached = fit([(1.0, r, c) for r, c, _ in measured.decodes], [s for *_, s in measured.decodes])
    rows = [(1.0, n, n * n / 2 if fast else 0.0, 0.0 if fast else n * n / 2) for n, fast, _ in measured.prefills]
    first, token, fast, slow = fit(rows, [s for *_, s in measured.prefills])
    both = {fast_one for _, fast_one, _ in measured.prefills}
    notes = []
    if both == {True}:
        slow = fast * table()["path"]["fast_ratio"]
        notes.append("no prompt took the fallback: its rate is the fast path's over the published ratio")
    elif both == {False}:
        fast = slow / table()["path"]["fast_ratio"]
        notes.append("no prompt took the fast path: its rate is the fallback's times the published ratio")
    if not measured.paths_told:
        notes.append("the server does not tell which path a prompt took: it is taken to be the fast one")
    # A pass of one token costs what a decode step does; the rest of the first token's time is the way to the client.
    own = min(decode + row, first)
    # Where the scheduler waits for a pass, it tells the answer only after the next one, a decode step for nobody.
    late = decode + row if blocking else 0.0
    predicted = [first + token * n + (fast if on else slow) * n * n / 2 for n, on, _ in measured.prefills]
    errors = [abs(p - s) / s for p, (*_, s) in zip(predicted, measured.prefills, strict=True)]
    return {
        "schema": SCHEMA,
        "url": url,
        "model": model,
        "sglang": sglang,
        "measured": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "blocking": blocking,
        "seconds": {
            "pass": own,
            "token": token,
            "pair_fast": fast,
            "pair_slow": slow,
            "decode": decode,
            "row": row,
            "cached": cached,
            "answer": max(first - own - late, 0.0),
        },
        "fit": {"mean_error": round(sum(errors) / len(errors), 4), "worst_error": round(max(errors), 4)},
        "notes": notes,
        "prefills": [{"tokens": n, "fast": on, "seconds": round(s, 6)} for n, on, s in measured.prefills],
        "decodes": [{"rows": r, "context": c, "seconds": round(s, 6)} for r, c, s in measured.decodes],
    }
