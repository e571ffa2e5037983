"""What an observer of aiter sees: the LoadKernel line, the profiler's kernel name, and a log of our own."""

from __future__ import annotations

import gzip
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

_loaded: set[str] = set()
_recorded: set[str] = set()
LONGEST_LOG = 64 << 20
"""Bytes: a server that is left running must not fill the disk."""


def _quiet() -> bool:
    return os.environ.get("AITER_LOG_LEVEL", "INFO").upper() in {"WARNING", "ERROR"}


def load_kernel(symbol: str, co_name: str) -> None:
    """Print aiter's own line, to stdout, on a kernel's first use in a process; unless AITER_LOG_LEVEL hides it.

    Raises:
        RuntimeError: The kernel file does not exist, as aiter's loader raises.
    """
    if symbol in _loaded:
        return
    # The C++ loader joins AITER_ASM_DIR, which ends in a slash, with another one.
    path = f"{os.environ['AITER_ASM_DIR']}/gfx950/fmha_v3_fwd/{co_name}"
    if not _quiet():
        sys.stdout.write(f"[aiter] LoadKernel: {symbol} hsaco: {path}\n")
        sys.stdout.flush()
    if not Path(path).is_file():
        raise RuntimeError(f"failed to open {path}")
    _loaded.add(symbol)


def log(level: str, name: str, **fields: Any) -> None:
    """Append one line to $AITER_EMULATOR_LOG: ``level`` is "function" (what SGLang calls) or "kernel"."""
    path = os.environ.get("AITER_EMULATOR_LOG")
    if not path:
        return
    line = json.dumps({"level": level, "name": name, "pid": os.getpid(), "time": time.time(), **fields}) + "\n"
    # One write in append mode: the ranks of a server share the file.
    with Path(path).open("a", encoding="utf-8") as file:
        if file.tell() < LONGEST_LOG:
            file.write(line)


def delay() -> None:
    """Take as many ms more as $AITER_EMULATOR_DELAY_FILE says at this moment: a difference whose size is known.

    Not asleep: a core that has slept needs some ms, here and there, to be as quick as before.
    """
    path = os.environ.get("AITER_EMULATOR_DELAY_FILE")
    if path and Path(path).is_file():
        end = time.perf_counter() + float(Path(path).read_text(encoding="utf-8")) / 1000
        while time.perf_counter() < end:
            pass


@contextmanager
def kernel(name: str, label: str, **fields: Any) -> Iterator[None]:
    """Record one kernel: in torch's profiler under ``name``, in the log under ``label``."""
    log("kernel", label, symbol=name, **fields)
    _recorded.add(name)
    with torch.profiler.record_function(name):
        yield


def shape(tensor: torch.Tensor) -> list[int]:
    """The shape as JSON takes it."""
    return [int(size) for size in tensor.shape]


def _relabel(path: str) -> None:
    """Make an exported trace show our kernels as a GPU's does: category "kernel", and that they are emulated."""
    opened = gzip.open if path.endswith(".gz") else open
    with opened(path, "rt", encoding="utf-8") as file:
        trace = json.load(file)
    for event in trace.get("traceEvents", ()):
        if event.get("cat") == "user_annotation" and event.get("name") in _recorded:
            event["cat"] = "kernel"
            event.setdefault("args", {})["emulated"] = True
    with opened(path, "wt", encoding="utf-8") as file:
        json.dump(trace, file)


def _export_as_a_gpu_does() -> None:
    profiler = torch.profiler.profiler._KinetoProfile
    export = profiler.export_chrome_trace

    def relabelled(self: Any, path: str) -> Any:
        result = export(self, path)
        _relabel(path)
        return result

    profiler.export_chrome_trace = relabelled


_export_as_a_gpu_does()
