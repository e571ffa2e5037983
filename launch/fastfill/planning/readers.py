"""Reads traces: Mooncake's JSONL, SGLang's request logs, its benchmark's JSONL. Prompts' texts are not kept."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from fastfill.errors import UsageError
from fastfill.planning import benchlog, requestlog, units
from fastfill.planning.trace import Trace

NAN = float("nan")
LENGTHS = "client's max_new_tokens"
CUT = "the last line was cut off: left out"
IGNORE = "whether clients set ignore_eos"
_LONGEST = 100_000_000
_EPOCH_S, _EPOCH_MS = 1e9, 1e11

Bad = Callable[[str], NoReturn]


class Lines:
    """A file's lines with their numbers, gzipped or not; a last line that was cut off is left out and noted."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.number = 0
        self.cut = self.dropped = 0

    def bad(self, what: str) -> NoReturn:
        """Stop at the present line."""
        raise UsageError(what, where=f"{self.file}, line {self.number}", next_step="correct the line, or leave it out")

    def __iter__(self) -> Iterator[str]:
        try:
            with self.file.open("rb") as probe:
                packed = probe.read(2) == b"\x1f\x8b"
            opened: Any = gzip.open if packed else open
            with opened(self.file, "rb") as stream, io.BufferedReader(stream, 1 << 20) as lines:
                for raw in lines:
                    self.number += 1
                    text = raw.decode("utf-8", errors="replace").strip()
                    if text:
                        self.cut = 0 if raw.endswith(b"\n") else self.number
                        yield text
        except EOFError:
            self.number += 1
            self.bad("the gzip file ends too early: it was cut off")
        except (OSError, gzip.BadGzipFile) as error:
            raise UsageError(f"the trace cannot be read: {error}", where=str(self.file)) from None

    def parse(self, text: str) -> Any:
        """A line's JSON; None for a last line that was cut off.

        Raises:
            UsageError: It is no JSON.
        """
        try:
            return json.loads(text)
        except ValueError as error:
            self.drop(f"not valid JSON: {error}")
            return None

    def drop(self, what: str) -> None:
        """Leave the present line out if it is a last one that was cut off; else it is an error."""
        if self.cut != self.number:
            self.bad(what)
        self.dropped = self.number


def read(file: Path, *, block: int = 512, unit: str = "") -> Trace:
    """Read a trace, whichever of the formats it has.

    Args:
        block: Tokens that one of Mooncake's hashes stands for.
        unit: ``s`` or ``ms`` for Mooncake's timestamps; "" for what the format says, milliseconds.

    Raises:
        UsageError: A line cannot be used; the message has its number.
    """
    if not file.is_file():
        raise UsageError("there is no such trace", where=str(file), next_step="give --trace a file")
    lines = Lines(file)
    first = next(iter(lines), None)
    if first is None:
        raise UsageError("the trace is empty", where=str(file))
    if requestlog.recognises(first) or not first.startswith("{"):
        trace = requestlog.read(Lines(file))
    else:
        head = lines.parse(first)
        if isinstance(head, dict) and "input_lens" in head:
            trace = benchlog.read(Lines(file))
        elif isinstance(head, dict) and ("input_length" in head or "output_length" in head):
            trace = _mooncake(Lines(file), block, unit)
        elif isinstance(head, dict) and "mean_ttft_ms" in head:
            raise UsageError(
                "the benchmark's file has no single requests",
                where=str(file),
                next_step="run the benchmark with --output-details",
            )
        else:
            raise UsageError(
                "the trace has none of the formats that are read",
                where=f"{file}, line {lines.number}",
                next_step="use Mooncake's JSONL (timestamp, input_length, output_length, hash_ids), SGLang's request "
                "log, or its benchmark's JSONL",
            )
    if not len(trace):
        raise UsageError("the trace has no requests", where=str(file))
    return trace


def length(value: Any, name: str, bad: Bad) -> int:
    """A length in tokens, at least 0."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        bad(f"{name} is missing" if value is None else f"{name} is no whole number: {value!r:.40}")
    if value < 0:
        bad(f"{name} is negative: {value}")
    if value > _LONGEST:
        bad(f"{name} is no length: {value}")
    return int(value)


def _mooncake(lines: Lines, block: int, unit: str) -> Trace:
    trace = Trace("Mooncake's JSONL", [LENGTHS, IGNORE], block=block)
    scale = 1.0 if unit == "s" else 1e-3
    last, epoch, zero, unsorted, short = None, None, 0, 0, 0
    steps: list[units.Step] = []
    timed: bool | None = None
    for text in lines:
        row = lines.parse(text)
        if row is None:
            continue
        if not isinstance(row, dict):
            lines.bad("not an object")
        n_in = length(row.get("input_length"), "input_length", lines.bad)
        n_out = length(row.get("output_length"), "output_length", lines.bad)
        if n_in == 0:
            lines.bad("input_length is 0: a prompt has at least one token")
        if n_out == 0:
            zero = zero or lines.number
            n_out = 1
        at = row.get("timestamp")
        timed = at is not None if timed is None else timed
        if (at is not None) != timed:
            lines.bad("timestamp is missing" if timed else "there is a timestamp, but the lines before have none")
        if at is not None:
            if isinstance(at, bool) or not isinstance(at, int | float) or at != at:
                lines.bad(f"timestamp is no number: {at!r:.40}")
            if at < 0:
                lines.bad(f"timestamp is negative: {at}")
            size = 2 if at >= _EPOCH_MS else 1 if at >= _EPOCH_S else 0
            if epoch is not None and size != epoch and (size == 2 or epoch == 2):
                lines.bad(f"time units are mixed: {at} beside {last}")
            epoch = size
            if last is not None:
                if at < last:
                    unsorted = unsorted or lines.number
                if (step := units.step(len(trace), lines.number, last, at)) is not None:
                    steps.append(step)
            last = at
        trace.add(NAN if at is None else at * scale, n_in, n_out)
        hashes = row.get("hash_ids")
        if hashes is None:
            trace.block = 0
        elif trace.block:
            if not isinstance(hashes, list) or not all(type(h) is int and -(1 << 40) < h < 1 << 40 for h in hashes):
                lines.bad("hash_ids is no list of whole numbers below 2^40")
            if len(hashes) > -(-n_in // block):
                lines.bad(f"{len(hashes)} hash_ids for {n_in} tokens: with {block} tokens a block there are fewer")
            if len(hashes) < n_in // block:
                short = short or lines.number
            trace.add_hashes(hashes)
    told = {(2, "s"): "milliseconds", (1, "ms"): "seconds"}.get((epoch or 0, unit))
    if told:
        right = f"--assume time_unit={'ms' if unit == 's' else 's'}"
        raise UsageError(
            f"time_unit={unit}, but the timestamps are {told} since 1970", where=str(lines.file), next_step=right
        )
    times = [at / scale for at in trace.arrival] if steps else trace.arrival
    if (change := units.mixed(times, steps)) is not None:
        lines.number = change.line
        lines.bad(f"time units are mixed: {change.at:g} after {change.before:g}")
    trace.doubts += units.doubts(times, steps, sum(trace.n_in), scale)
    if not trace.block:
        trace.lacks.append("prefix hashes")
    if not trace.timed:
        trace.lacks.append("arrival times")
    notes = [
        (zero, "output_length 0 counts as 1"),
        (unsorted, "not in the order of time: sorted"),
        (short, "fewer hash_ids than the prompt has blocks: the rest of it is shared with nobody"),
        (lines.dropped, CUT),
    ]
    trace.repairs += [f"line {number}: {what}" for number, what in notes if number]
    return trace
