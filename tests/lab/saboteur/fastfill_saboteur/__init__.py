"""A plugin that breaks a lab server on request, while it runs: only the tests put it on a server's path.

Each forward pass reads the modes from the file that FASTFILL_SABOTEUR names: words, separated by spaces. A word that
is a fault of the emulator, or several joined by "+", asks for that; ``MODES`` and ``KERNELS`` are ours, and
``ignore:ID`` makes the gate ignore a condition.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

ALWAYS = ("flash_attn_varlen_fp8_pertensor_func", "asm", 256)

KERNELS: dict[str, Callable[[Any, Any], None]] = {}
"""Faults of the kernel's answer: (result, lengths of the sequences), in place."""


def kernel(function: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    KERNELS[function.__name__] = function
    return function


@kernel
def long_only(result: Any, lengths: Any) -> None:
    """Right up to 1024 tokens, halved beyond."""
    if max(lengths) > 1024:
        result *= 0.5


@kernel
def scale_up(result: Any, lengths: Any) -> None:
    """A scale applied one and a quarter times."""
    result *= 1.25


@kernel
def zero_middle(result: Any, lengths: Any) -> None:
    """The middle half of the rows is zero; the last row is right."""
    rows = result.shape[0]
    result[rows // 4 : rows - rows // 4] = 0


@kernel
def heads_swapped(result: Any, lengths: Any) -> None:
    """Each head's answer in its neighbour's place."""
    result.copy_(result.roll(1, 1))


@kernel
def nan_row(result: Any, lengths: Any) -> None:
    """NaN in one row of many."""
    result[result.shape[0] // 2] = float("nan")


@kernel
def short_only(result: Any, lengths: Any) -> None:
    """Wrong inside the first tile, right beyond."""
    if max(lengths) <= 256:
        result *= 0.5


MODES = ("one_layer", "rank0", "never", "counters_never", "counters_always", "ring_always", "kv_wrong", "as_256")


class Sabotage:
    """What is asked for now."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.words: frozenset[str] = frozenset()
        self.gate: dict[str, Any] = {}
        self.faults = [name for name in os.environ.get("AITER_EMULATOR_FAULT", "").split(",") if name]

    def read(self) -> None:
        """Look at the file; a word that nobody knows must not look like a sound server."""
        words = frozenset(self.file.read_text().split()) if self.file.exists() else frozenset()
        if words != self.words:
            from aiter import _asm
            from aiter.faults import FAULTS, AnswerFaults

            known = {*MODES, *KERNELS}
            faults = [part for word in words - known if ":" not in word for part in word.split("+")]
            unknown = set(faults) - set(FAULTS)
            assert not unknown, unknown
            os.environ["AITER_EMULATOR_FAULT"] = ",".join([*self.faults, *faults])
            # It counts calls to know the layer, and some of our modes leave an odd number behind.
            _asm._answer_faults = AnswerFaults()
            self.words = words
            self._gate()

    def _gate(self) -> None:
        from sglang_fastfill import gate

        tables = (gate.BATCH, gate.DYNAMIC)
        for table in tables:
            table.update({id: was for id, was in self.gate.items() if id in table})
        for word in self.words:
            if word.startswith("ignore:"):
                id = word.partition(":")[2]
                (table,) = (one for one in tables if id in one)
                self.gate.setdefault(id, table[id])
                table[id] = lambda facts: False

    def has(self, word: str) -> bool:
        return word in self.words


def register() -> None:
    """SGLang's plugin entry point."""
    if multiprocessing.parent_process() is not None and os.environ.get("FASTFILL_SABOTEUR"):
        _break(Sabotage(Path(os.environ["FASTFILL_SABOTEUR"])))


def _break(now: Sabotage) -> None:
    _break_start(now)
    _break_ledger(now)
    _break_prefill(now)
    _break_kernel(now)
    _break_meters(now)


def _break_start(now: Sabotage) -> None:
    """Conditions of the deployment and hooks are decided once: these words must be there when the server starts."""
    from sglang_fastfill import gate, witness

    now.read()
    for word in now.words:
        if word.startswith("ignore-at-start:"):
            gate.DEPLOYMENT[word.partition(":")[2]] = lambda facts: False
    if "witness:rank0" in now.words:
        original = witness.around_forward

        def only_rank_0(call: Any, runner: Any, *args: Any, **kwargs: Any) -> Any:
            from sglang_fastfill import identity

            if identity.rank(runner)["tp"]:
                return call(runner, *args, **kwargs)
            return original(call, runner, *args, **kwargs)

        only_rank_0.__dict__.update(original.__dict__)
        witness.around_forward = only_rank_0


def _break_ledger(now: Sabotage) -> None:
    from sglang_fastfill.ledger import Ledger

    begin, end, call = Ledger.begin, Ledger.end, Ledger.call

    def beginning(self: Any) -> None:
        now.read()
        begin(self)

    def ending(self: Any) -> Any:
        calls, reasons = end(self)
        return ({ALWAYS: sum(calls.values())}, {}) if now.has("ring_always") else (calls, reasons)

    def calling(self: Any, function: str, reached: str, head_dim: int) -> None:
        call(self, function, reached, 256 if now.has("as_256") else head_dim)

    Ledger.begin, Ledger.end, Ledger.call = beginning, ending, calling


def _break_prefill(now: Sabotage) -> None:
    from sglang_fastfill import prefill, witness

    begin = prefill.begin

    def beginning(backend: Any, q: Any, k: Any, v: Any, layer: Any, forward_batch: Any, sinks: Any) -> Any:
        found = begin(backend, q, k, v, layer, forward_batch, sinks)
        if found is not None and found.fires:
            silent = now.has("never") or (now.has("one_layer") and layer.layer_id > 0)
            if silent or (now.has("rank0") and witness._witness is not None and witness._witness.rank["tp"] > 0):
                found.fall_back(k, v, backend.fastfill_memory)
                found.fires = False
            elif now.has("kv_wrong"):
                k8, v8, *rest = found.write
                found.write = (k8, (v8.float() * 0.5).to(v8.dtype), *rest)
        return found

    prefill.begin = beginning


def _break_kernel(now: Sabotage) -> None:
    from aiter import _asm

    answer = _asm.varlen_fwd

    def answering(q: Any, k: Any, v: Any, starts: Any, *args: Any) -> Any:
        result = answer(q, k, v, starts, *args)
        lengths = starts.diff().tolist()
        for word in now.words & KERNELS.keys():
            KERNELS[word](result, lengths)
        return result

    _asm.varlen_fwd = answering


def _break_meters(now: Sabotage) -> None:
    from sglang_fastfill.meters import Meters

    add = Meters.add

    def adding(self: Any, calls: Any, *args: Any, **kwargs: Any) -> None:
        if not now.has("counters_never"):
            add(self, {**calls, ALWAYS: 1000} if now.has("counters_always") else calls, *args, **kwargs)

    Meters.add = adding
