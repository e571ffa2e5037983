"""What a benchmark's document holds for a time model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bench_fakes import World, bench

from fastfill.benchmark import report
from fastfill.benchmark.grid import Cell
from fastfill.benchmark.timings import timings

ALONE, MANY, SHORT = Cell(100, 40, 1, 4), Cell(100, 40, 8, 16), Cell(100, 1, 1, 4)


def event(cell: Cell, arm: str, work: float | None, **more: Any) -> dict[str, Any]:
    run = {"ttft_ms": [20.0, 30.0, 100.0], "work": work, "metrics": {"median_itl_ms": 5.0}}
    return {"cell": cell.name, "arm": arm, "void": [], "run": run, **more}


def test_lone_prompts_are_prefills_and_every_cell_with_answers_is_a_decode() -> None:
    runs = [event(ALONE, "A", 0.0), event(ALONE, "B", 1.0), event(MANY, "B", 1.0), event(SHORT, "A", 0.0)]
    found = timings([ALONE, MANY, SHORT], runs, "cpu")
    assert found.blocking is True
    assert [(one.arm, one.tokens, one.fast, one.requests) for one in found.prefills] == [
        ("A", 100, False, 3),
        ("B", 100, True, 3),
        ("A", 100, False, 3),
    ]
    assert [one.seconds for one in found.prefills] == pytest.approx([0.03] * 3)
    assert [(one.arm, one.rows, one.context, one.seconds) for one in found.decodes] == [
        ("A", 1, 120, 0.005),
        ("B", 1, 120, 0.005),
        ("B", 8, 960, 0.005),
    ]


def test_void_runs_mixtures_and_runs_without_counters_are_left_out() -> None:
    runs = [event(ALONE, "A", 0.4), event(ALONE, "B", None)]
    found = timings([ALONE], runs, None)
    assert found.prefills == [] and len(found.decodes) == 2 and found.blocking is None
    runs = [event(ALONE, "A", 0.0, void=["others"]), {**event(ALONE, "B", 1.0), "void": ["cut off"], "run": None}]
    found = timings([ALONE], runs, "cuda")
    assert found.prefills == found.decodes == [] and found.blocking is False


def test_the_document_of_a_benchmark_holds_them(tmp_path: Path) -> None:
    bench(tmp_path, World())[0].run()
    found = report.read(tmp_path).model_dump(mode="json", by_alias=True)["timings"]
    assert [(one["arm"], one["tokens"], one["fast"]) for one in found["prefills"]] == [
        ("A", 64, False),
        ("B", 64, True),
    ]
    # Three blocks of A B B A and one of A A A A, four prompts a run.
    assert [one["requests"] for one in found["prefills"]] == [40, 24]
    assert [(one["rows"], one["context"]) for one in found["decodes"]] == [(1, 65), (1, 65)]
    assert found["blocking"] is True
