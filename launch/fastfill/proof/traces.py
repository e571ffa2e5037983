"""A torch profiler's trace, read as a stream: which attention kernels ran, how often, on which GPU.

Facts: SGLang's /start_profile leaves one gzip JSON file a rank, named
``…-TP-<rank>[-DP-<rank>][-PP-<rank>].trace.json.gz``. A GPU's kernels are its events of category "kernel", on ROCm as
on CUDA; ``deviceProperties`` names the GPUs. A real file has millions of events, so nothing but counts is kept.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections import Counter
from typing import IO, Any, NamedTuple

from pydantic import Field

from fastfill.proof.sent import Attempt
from fastfill.proof.wire import Rank, RankPasses, Wire

OURS = "fmha_fwd_hd256_fp8"
"""In the name of every assembly kernel of head dim 256, causal or not, mangled or not."""
_ATTENTION = re.compile(r"fmha|attention|attn", re.IGNORECASE)
_RANKS = re.compile(r"-TP-(\d+)(?:-DP-(\d+))?(?:-PP-(\d+))?")
_GFX950 = re.compile(r"MI35\d|gfx950", re.IGNORECASE)
LONGEST_NAME = 160
MOST_NAMES = 40
MOST_STEPS = 64
MOST_RUNS = 100_000


_WANTED = frozenset(f"traceEvents.item.{name}" for name in ("cat", "name", "ts", "dur", "args.emulated"))


class Run(NamedTuple):
    """One run of a kernel: its name, its start and its length in microseconds."""

    name: str
    start: float
    length: float


class TraceRank(Wire):
    """One rank's trace.

    Attributes:
        file: Its name.
        problem: Why it could not be read to its end; the counts are then what came before.
        gpu: The GPUs that it names, empty where it names none.
        emulated: Whether it says that its kernels are the lab's.
        events: Events of any kind.
        kernels: Attention kernels by name, and how often each ran.
        steps: SGLang's own marks of forward passes, the first of them.
        runs: The runs of these kernels, in the file's order.
    """

    rank: Rank
    file: str
    problem: str = ""
    gpu: str = ""
    emulated: bool = False
    events: int = 0
    kernels: dict[str, int] = Field(default_factory=dict)
    steps: tuple[str, ...] = ()
    runs: tuple[Run, ...] = ()

    @property
    def ours(self) -> int:
        """Runs of the assembly kernel for head dim 256."""
        return sum(count for name, count in self.kernels.items() if OURS in name)

    @property
    def foreign(self) -> bool:
        """Whether it names GPUs, none of which is an MI350X or MI355X."""
        return bool(self.gpu) and not _GFX950.search(self.gpu)


class TraceEvidence(Wire):
    """What the profiler saw of a few passes.

    Attributes:
        problem: Why there is no trace; empty where there is one.
        attempts: The requests that were sent while it ran.
        whole: Whether it ran until it was told to stop, so that it saw every pass in between.
        between: Every pass that the ranks noted in between, of anybody; without the ids of others.
        complete: Whether the ring still held all of them.
        ranks: The traces.
    """

    problem: str = ""
    attempts: tuple[Attempt, ...] = ()
    whole: bool = False
    between: tuple[RankPasses, ...] = ()
    complete: bool = True
    ranks: tuple[TraceRank, ...] = ()

    def sent(self) -> tuple[Attempt, ...]:
        """The requests, in order."""
        return self.attempts


def rank_of(name: str) -> Rank | None:
    """The rank that a file's name says, None where it says none."""
    match = _RANKS.search(name)
    if match is None:
        return None
    tp, dp, pp = (int(part or 0) for part in match.groups())
    return Rank(pp=pp, dp=dp, tp=tp)


def read(name: str, file: IO[bytes]) -> TraceRank:
    """Read one trace; what is broken in it becomes its problem.

    Args:
        name: The file's name, which names the rank; gzip where it ends in .gz.
        file: Its bytes.
    """
    import ijson

    reading = _Reading()
    problem = "" if rank_of(name) else "its name names no rank"
    opened: Any = gzip.GzipFile(fileobj=file) if name.endswith(".gz") else file
    try:
        for prefix, event, value in ijson.parse(opened):
            reading.take(prefix, event, value)
        if not reading.closed:
            problem = "it holds no traceEvents"
        elif len(reading.runs) > MOST_RUNS:
            problem = f"it holds more than {MOST_RUNS} attention kernels: profile fewer steps"
    except (EOFError, zlib.error, gzip.BadGzipFile, ijson.JSONError, UnicodeDecodeError, OSError) as error:
        problem = f"it ends early or is damaged: {_first_line(error)}"
    return TraceRank(
        rank=rank_of(name) or Rank(),
        file=name,
        problem=problem,
        gpu=", ".join(dict.fromkeys(reading.gpus)),
        emulated=reading.emulated,
        events=reading.events,
        kernels=_kept(reading.kernels),
        steps=tuple(reading.steps[:MOST_STEPS]),
        runs=tuple(reading.runs[:MOST_RUNS]),
    )


def reduced(trace: TraceRank) -> bytes:
    """What was kept of a trace in the form of a trace, gzip where its name says so: reading it gives the same again."""
    emulated = {"emulated": True} if trace.emulated else {}
    events: list[dict[str, Any]] = [
        {"ph": "X", "cat": "user_annotation", "name": step, "pid": 0, "tid": 0, "ts": 0, "dur": 0}
        for step in trace.steps
    ]
    events += [
        {"ph": "X", "cat": "kernel", "name": run.name, "pid": 0, "tid": 0, "ts": run.start, "dur": run.length}
        | {"args": emulated}
        for run in trace.runs
    ]
    devices = [{"id": number, "name": name} for number, name in enumerate(trace.gpu.split(", ")) if name]
    text = json.dumps({"deviceProperties": devices, "traceEvents": events})
    return gzip.compress(text.encode(), mtime=0) if trace.file.endswith(".gz") else text.encode()


def _kept(kernels: Counter[str]) -> dict[str, int]:
    """The most frequent names, and ours however rare: they are what the trace is read for."""
    ordered = sorted(kernels.most_common(), key=lambda pair: OURS not in pair[0])
    return dict(ordered[:MOST_NAMES])


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return 0.0


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:120] if lines else type(error).__name__


class _Reading:
    """The counts so far."""

    def __init__(self) -> None:
        self.kernels: Counter[str] = Counter()
        self.gpus: list[str] = []
        self.steps: list[str] = []
        self.runs: list[Run] = []
        self.emulated = False
        self.events = 0
        self.closed = False
        self._event: dict[str, Any] = {}

    def take(self, prefix: str, event: str, value: Any) -> None:
        """One token of the JSON."""
        if prefix == "traceEvents.item":
            if event == "start_map":
                self._event = {}
            elif event == "end_map":
                self._end()
        elif prefix in _WANTED:
            self._event[prefix.rpartition(".")[2]] = value
        elif prefix == "traceEvents" and event == "end_array":
            self.closed = True
        elif prefix == "deviceProperties.item.name" and value:
            self.gpus.append(str(value))

    def _end(self) -> None:
        self.events += 1
        name, category = str(self._event.get("name", "")), str(self._event.get("cat", "")).lower()
        if category == "kernel" and _ATTENTION.search(name):
            name = name[:LONGEST_NAME]
            self.kernels[name] += 1
            if len(self.runs) <= MOST_RUNS:
                self.runs.append(Run(name, _number(self._event.get("ts")), _number(self._event.get("dur"))))
            self.emulated |= self._event.get("emulated") is True
        elif name.startswith("step[") and len(self.steps) < MOST_STEPS:
            self.steps.append(name[:LONGEST_NAME])
