"""aiter's LoadKernel lines in a server's log: found in bytes of any encoding, and counted for this server only.

Facts: aiter prints ``[aiter] LoadKernel: <symbol> hsaco: <file>`` to stdout once a process, when a kernel is first
used, at log level INFO (csrc/include/aiter_hip_common.h); the line names neither a process nor a rank. SGLang prints
``server_args=ServerArgs(…)`` once at each start, from 0.5.19 on ``server_args={…}``, with the seed that /server_info
repeats.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import NamedTuple

from fastfill.proof.wire import Wire

SYMBOL = "fmha_fwd_hd256_fp8_causal_group_gfx950"
"""The assembly kernel for causal packed prefill, as the symbol ``_ZN5aiter38fmha_…E`` spells it."""

LONGEST_LINE = 4096
"""Bytes of a line that are kept; a line of SGLang's arguments is looked at whole."""
KEPT = 64
"""Lines that the evidence keeps: one a process is expected."""

_WHOLE = re.compile(rb"\[aiter\] LoadKernel: (\S+) hsaco: (\S+?\.co)")
_START = re.compile(rb"server_args=(?:ServerArgs\(|\{)")
_SEED = re.compile(rb"\brandom_seed(?:=|['\"]: )(\d+)")
_SIGN = b"LoadKernel"


class LogEvidence(Wire):
    """What a log holds of the server that it was last about.

    Attributes:
        source: Where it was read, as the operator would name it.
        problem: Why it could not be read; empty otherwise.
        lines: LoadKernel lines of the kernel, as printed; bytes that are no UTF-8 are replaced.
        others: LoadKernel lines of other kernels.
        torn: Pieces of LoadKernel lines that others have written into.
        undecodable: Lines that are not UTF-8.
        reaches_start: Whether the server's start is in it.
        seed: The seed that the start's line names.
        dated: Whether each line has its time, so that earlier servers' are left out.
        size: Bytes that were read.
    """

    source: str
    problem: str = ""
    lines: tuple[str, ...] = ()
    others: int = 0
    torn: int = 0
    undecodable: int = 0
    reaches_start: bool = False
    seed: int | None = None
    dated: bool = False
    size: int = 0


def scan(source: str, log: Iterable[bytes]) -> LogEvidence:
    """Read a log to its end; each start of a server begins the count anew.

    Args:
        source: Where it comes from.
        log: Its lines, with or without line ends.
    """
    found = LogEvidence(source=source)
    lines: list[str] = []
    others = torn = undecodable = size = 0
    for line in log:
        size += len(line)
        if _START.search(line):
            match = _SEED.search(line)
            seed = int(match.group(1)) if match else None
            # A process that prints its arguments twice has started once.
            if seed is None or seed != found.seed:
                lines, others, torn, undecodable = [], 0, 0, 0
            found = found.model_copy(update={"reaches_start": True, "seed": seed})
        undecodable += not _decodes(line)
        if _SIGN not in line and SYMBOL.encode() not in line:
            continue
        whole = _WHOLE.findall(line)
        ours = sum(SYMBOL.encode() in symbol for symbol, _ in whole)
        others += len(whole) - ours
        torn += max(0, line.count(_SIGN) - len(whole)) or (not whole)
        lines += [line[:LONGEST_LINE].decode("utf-8", "replace").strip()] * ours
    return found.model_copy(
        update={
            "lines": tuple(lines[:KEPT]),
            "others": others,
            "torn": torn,
            "undecodable": undecodable,
            "size": size,
        }
    )


def _decodes(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


class Record(NamedTuple):
    """A line that ``fastfill supervise`` kept: when it was printed, seconds since 1970."""

    time: float
    line: str


def records(text: str) -> tuple[Record, ...]:
    """The records of a ``kernels.jsonl``; lines that are none are left out, a full disk cuts the last one short."""
    found = []
    for line in text.splitlines():
        try:
            value = json.loads(line)
            found.append(Record(float(value["time"]), str(value["line"])))
        except (ValueError, KeyError, TypeError):
            continue
    return tuple(found)


def of_server(source: str, kept: tuple[Record, ...], since: float) -> LogEvidence:
    """What ``kernels.jsonl`` says of the server whose witnesses began at ``since``, seconds since 1970.

    The file is appended to by one server after the other, and a witness begins before its rank's first pass, so that
    what was printed earlier is another server's. A line that is missing says nothing: the disk may have been full, or
    the clock may have jumped.
    """
    found = scan(source, (record.line.encode() for record in kept if record.time >= since))
    return found.model_copy(update={"dated": True})
