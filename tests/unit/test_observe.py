"""How what a server did is put in explain's words: bench/observe.py without a server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import observe
import sweep
from observe import Case, Observed, Row

from fastfill.lab import models, stacks

RIGHT = {"fresh": 0.09, "chunks": 0.1}


@pytest.mark.parametrize(
    ("passes", "delta", "verdict"),
    [
        ({"fresh": [True], "chunks": [True, True, True], "cached prefix": [True]}, RIGHT, "fires"),
        ({"fresh": [True], "chunks": [True, False, False], "cached prefix": [False]}, RIGHT, "conditional"),
        ({"fresh": [True], "chunks": [True, True, True], "fallback asked for": [False]}, RIGHT, "conditional"),
        ({"fresh": [False], "chunks": [False, False, False]}, RIGHT, "never"),
        ({"fresh": [True], "chunks": [True, True, True]}, {"fresh": 0.09, "chunks": 1.4}, "wrong"),
        # Wrong answers of a path that was not taken are not this path's.
        ({"fresh": [False], "chunks": [False, False, False]}, {"fresh": 1.4, "chunks": 1.4}, "never"),
    ],
)
def test_the_verdict_of_what_was_seen(passes: dict[str, list[bool]], delta: dict[str, float], verdict: str) -> None:
    assert observe._verdict(Observed(passes=passes, delta=delta)) == verdict


def test_a_crash_is_named_by_aiters_words() -> None:
    log = "x\n  RuntimeError: invalid argument for fmha_fwd\nKilled\nSome other Error\n"
    assert observe.died(log) == Observed(verdict="crashes", error="RuntimeError: invalid argument for fmha_fwd")


def test_a_disagreement_stands_out_in_the_table_and_a_row_survives_its_file() -> None:
    seen = Observed(verdict="never", passes={"fresh": [False]}, kernels={"ck/256": 2}, coverage=0.0)
    row = Row(Case("sglang-0.5.17", kv="auto"), "fires", "", seen, {"verdict": "NOT_FIRED", "reason": "unexplained"})
    assert "DISAGREE" in observe.table([row]) and "NOT_FIRED unexplained" in observe.table([row])
    kept: Any = sweep.record(row)
    assert sweep.row_of(kept) == row and kept["agrees"] is False


def test_the_sweep_covers_every_stack_and_kind_of_model() -> None:
    cases = sweep.cases()
    assert len(set(cases)) == len(cases)
    assert {case.stack for case in cases} == set(stacks.names())
    assert {case.model for case in cases} == set(models.VARIANTS) - {"needle"}
    assert all((ROOT / source).is_file() for source in sweep.SOURCES)
    assert {case.spec().flags for case in cases} == {
        (*observe.FLAGS, "--kv-cache-dtype", kv) for kv in ("auto", "fp8_e4m3")
    }
