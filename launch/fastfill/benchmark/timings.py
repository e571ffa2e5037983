"""What a benchmark's runs say of the time of one prefill pass and of one decode step: values in, values out."""

from __future__ import annotations

import statistics
from typing import Any, Literal

from fastfill.benchmark.document import DecodePart, PrefillPart, TimingsPart
from fastfill.benchmark.grid import Cell

_WHOLE = 0.999
"""Coverage from which on a prompt's prefill took the fast path whole: a sum of floats is not always 1."""


def timings(cells: list[Cell], runs: list[dict[str, Any]], device: str | None) -> TimingsPart:
    """The document's part.

    Args:
        cells: The grid.
        runs: The journal's ``run`` events that count.
        device: SGLang's name for what the server runs on; None where it is not known.
    """
    arms: tuple[Literal["A", "B"], ...] = ("A", "B")
    prefills, decodes = [], []
    for cell in cells:
        for arm in arms:
            bodies = [run["run"] for run in runs if run["cell"] == cell.name and run["arm"] == arm and not run["void"]]
            prefills += _prefill(cell, arm, bodies)
            decodes += _decode(cell, arm, bodies)
    return TimingsPart(blocking=None if device is None else device == "cpu", prefills=prefills, decodes=decodes)


def _prefill(cell: Cell, arm: Literal["A", "B"], bodies: list[dict[str, Any]]) -> list[PrefillPart]:
    times = [time for body in bodies for time in body["ttft_ms"]]
    covered = [body["work"] for body in bodies]
    # Beside others a prompt waits, and shares its pass with them.
    if cell.conc != 1 or not times or None in covered or not (min(covered) >= _WHOLE or max(covered) == 0.0):
        return []
    seconds = statistics.median(times) / 1000
    return [PrefillPart(arm=arm, tokens=cell.isl, fast=covered[0] > 0.0, seconds=seconds, requests=len(times))]


def _decode(cell: Cell, arm: Literal["A", "B"], bodies: list[dict[str, Any]]) -> list[DecodePart]:
    steps = [body["metrics"]["median_itl_ms"] for body in bodies if body["metrics"].get("median_itl_ms")]
    if cell.osl < 2 or not steps:
        return []
    rows = min(cell.conc, cell.prompts)
    context = rows * (cell.isl + cell.osl // 2)
    return [DecodePart(arm=arm, rows=rows, context=context, seconds=statistics.median(steps) / 1000)]
