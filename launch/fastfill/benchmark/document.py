"""The report as a document, ``fastfill.bench/1``: more keys may come, these keep their names.

``fastfill plan --calibration`` reads ``timings`` (see :class:`TimingsPart`): what one prefill pass and one decode step
took, in seconds, by arm. Of ``provenance`` it needs ``server``, ``model``, ``sglang``, ``tp_size`` and ``ended``.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from fastfill.benchmark.verdict import Name

SCHEMA: Literal["fastfill.bench/1"] = "fastfill.bench/1"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class EstimatePart(_Part):
    """A mean with its interval of 95 % over ``n`` blocks; ``p`` that it is none (ratio 1, difference 0)."""

    value: float
    low: float
    high: float
    p: float
    n: int


class CoveragePart(_Part):
    """Shares of a cell's prefill on the fast path, 0 to 1, the mean over its runs; ``stopped`` by reason."""

    tokens: float | None
    attention_work: float | None
    stopped: dict[str, float] = {}


class ArmPart(_Part):
    """One arm in one cell: medians over its runs of SGLang's figures, and every request's time to the first token.

    ``ttft_ms`` holds the percentiles 5, 25, 50, 75, 90, 95 and 99 over all requests; ``fast_calls`` are of all runs.
    """

    runs: int
    requests: int
    metrics: dict[str, float]
    ttft_ms: dict[str, float]
    coverage: CoveragePart
    fast_calls: int | None


class CellPart(_Part):
    """One cell. ``ratio``: B over A of the metric; ``difference``: B less A in its unit; ``noise``: A over A."""

    name: str
    isl: int
    osl: int
    conc: int
    prompts: int
    verdict: Name
    why: str
    ratio: EstimatePart | None
    difference: EstimatePart | None
    noise: EstimatePart | None
    adjusted_p: float | None
    arms: dict[Literal["A", "B"], ArmPart]
    blocks: list[float]
    noise_blocks: list[float]
    void_blocks: list[str]


class PrefillPart(_Part):
    """Prompts that were alone on the server (cells of concurrency 1).

    Attributes:
        arm: The arm that served them.
        tokens: Of each prompt.
        fast: Whether all their attention work took the fast path; else none did (a mixture is left out).
        seconds: Median time to the first token, the way to the client included.
        requests: How many there were.
    """

    arm: Literal["A", "B"]
    tokens: int
    fast: bool
    seconds: float
    requests: int


class DecodePart(_Part):
    """Decode steps of one cell.

    Attributes:
        arm: The arm that served it.
        rows: Sequences at once, the cell's concurrency.
        context: Tokens in the cache of all of them together, at the middle of the answers.
        seconds: Median time between two tokens, over the runs.
    """

    arm: Literal["A", "B"]
    rows: int
    context: int
    seconds: float


class TimingsPart(_Part):
    """What a time model can be fitted to, from runs that nothing stands against; both lists in the grid's order.

    Attributes:
        blocking: Whether a pass is over before the scheduler goes on, as on a CPU; None where the server does not say.
    """

    blocking: bool | None
    prefills: list[PrefillPart]
    decodes: list[DecodePart]


class ProofPart(_Part):
    """One proof of one arm."""

    arm: str
    time: float
    holds: bool
    why: str


class RunPart(_Part):
    """One run on the timeline."""

    step: str
    cell: str
    arm: str
    kind: str
    began: float
    ended: float
    load1: float
    metric: float | None
    void: str


class Provenance(_Part):
    """Where the figures come from. ``stack`` names the stack file of the server's SGLang, with its digest."""

    fastfill: str
    began: str
    ended: str
    client: str
    server: str
    sglang: str
    model: str
    tp_size: int | None
    stack: str
    kernel: str
    a: str
    b: str
    differences: list[str]
    label: str
    switch: str
    metric: str
    blocks: int
    noise: int
    load: str
    gpu: str


class BenchDocument(_Part):
    """The document. ``complete`` is false while runs are missing; ``interruptions`` are the stops and the returns."""

    schema_name: Literal["fastfill.bench/1"] = Field(default=SCHEMA, alias="schema")
    complete: bool
    provenance: Provenance
    cells: list[CellPart]
    proofs: list[ProofPart]
    interruptions: list[str]
    changed_files: list[str]
    runs: list[RunPart]
    timings: TimingsPart
    plan: dict[str, Any]
