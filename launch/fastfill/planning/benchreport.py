"""The time model's constants from the report of ``fastfill bench ab``, in place of a calibration.

The report's ``timings`` hold prompts that were alone on the server, and decode steps. Where no two prompt lengths were
tried with one client, the quickest twentieth of the prompts stands in, at the fewest clients that a length was tried
with: those hardly waited for others.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fastfill.benchmark.document import SCHEMA, BenchDocument
from fastfill.errors import UsageError
from fastfill.planning.constants import Decode, Prefill, alone, fitted
from fastfill.planning.figures import TimeModel, constants

__all__ = ["SCHEMA", "times"]


def times(document: dict[str, Any], file: Path) -> TimeModel:
    """The constants of a report.

    Raises:
        UsageError: It is none, or its cells do not tell them.
    """
    try:
        report = BenchDocument.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        at = ".".join(map(str, first["loc"]))
        raise UsageError(f"this is no report of fastfill bench: {at}: {first['msg']}", where=str(file)) from None
    prefills = [alone(one.tokens, float(one.fast), one.seconds) for one in report.timings.prefills]
    lone = len({one.tokens for one in prefills}) > 1
    if not lone:
        prefills = _quickest(report)
    decodes = [Decode(one.rows, one.context, one.seconds) for one in report.timings.decodes]
    if len({one.tokens for one in prefills}) < 2 or not decodes:
        lengths = len({one.tokens for one in prefills})
        what = f"{lengths} prompt lengths" if prefills else "no prompts"
        raise UsageError(
            f"the report's usable cells have {what if decodes else 'no times between tokens'}: that does not tell "
            "linear work from attention work and decode",
            where=str(file),
            next_step="run fastfill bench ab with two prompt lengths or more (conc=1 tells most), or "
            "fastfill plan calibrate --url URL",
        )
    blocking = bool(report.timings.blocking)
    found = fitted(prefills, decodes, blocking=blocking)
    about = report.provenance
    notes = [f"prefill times within {100 * found.mean_error:.0f} %", *found.notes]
    if not lone:
        notes.append("where several clients sent at once, the quickest twentieth is taken not to have waited")
    source = f"benchmark of {about.model} on {about.gpu}, {about.ended[:10]} ({'; '.join(notes)})"
    return TimeModel(constants(found.seconds), source, measured=True, blocking=blocking)


def _quickest(report: BenchDocument) -> list[Prefill]:
    """One an arm and prompt length, where the report says what share took the path."""
    cells = [cell for cell in report.cells if cell.verdict != "void"]
    fewest = {isl: min(cell.conc for cell in cells if cell.isl == isl) for isl in {cell.isl for cell in cells}}
    found = []
    for cell in cells:
        for arm in cell.arms.values() if cell.conc == fewest[cell.isl] else ():
            covered, waited = arm.coverage.attention_work, arm.ttft_ms.get("p5", 0.0)
            if covered is not None and waited > 0:
                found.append(alone(cell.isl, min(max(covered, 0.0), 1.0), waited / 1e3))
    return found
