"""How blocks with a known difference are judged: bench/paired.py without a server."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from bench_fakes import World, raw

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import paired

from fastfill.benchmark import stats
from fastfill.benchmark.grid import Cell
from fastfill.benchmark.schedule import units


def events(random: np.random.Generator, kind: str, count: int, effect: float, *, bursts: bool) -> list[dict[str, Any]]:
    """A journal of blocks whose runs have a noise of their own, on a machine that becomes slower; now and then another
    user trebles the noise for a while."""
    found: list[dict[str, Any]] = []
    cell = Cell(64, 1, 1, 3)
    for unit in units([cell], blocks=paired.PARTS * count, noise=paired.PARTS * count, switch="path"):
        if not unit.name.startswith(kind):
            continue
        found.append({"event": "begun", "unit": unit.name, "attempt": 0})
        spread = 12.0 if bursts and random.random() < 0.2 else 4.0
        for step in unit.steps:
            drift = 0.05 * (4 * step.block + step.position)
            time = 30 + drift + random.normal(0.0, spread) + effect * (kind == "ab" and step.side == "right")
            run = {"metrics": {"median_ttft_ms": time}}
            found.append({"event": "run", "unit": unit.name, "attempt": 0, "kind": kind, "block": step.block,
                          "side": step.side, "step": step.name, "void": [], "run": run})  # fmt: skip
    return found


def blocks(random: np.random.Generator, kind: str, effect: float, *, bursts: bool) -> list[stats.Estimate]:
    return paired.blocks_of(events(random, kind, 40, effect, bursts=bursts), kind, "median_ttft_ms")


@pytest.mark.parametrize("bursts", [False, True])
def test_false_verdicts_are_rare_and_the_truth_is_covered(bursts: bool) -> None:
    random = np.random.default_rng(20261130)
    false = covered = found = 0
    for _ in range(40):
        same, slower = (blocks(random, kind, 100.0, bursts=bursts) for kind in ("aa", "ab"))
        judged = paired.judge(same, slower, 100.0)
        assert (judged["a_a"]["blocks"], judged["delayed"]["blocks"], judged["a_a"]["binomial_bound"]) == (40, 40, 6)
        false += judged["a_a"]["false_verdicts"]
        covered += judged["delayed"]["covered"]
        found += judged["delayed"]["found"]
    assert false / 1600 <= 0.06, false
    assert 0.94 <= covered / 1600 <= 0.98, covered
    assert found / 1600 >= 0.99, found


def test_a_wrong_truth_is_not_covered_and_an_arm_that_differs_from_itself_is_seen() -> None:
    random = np.random.default_rng(1)
    same, slower = (blocks(random, kind, 100.0, bursts=False) for kind in ("aa", "ab"))
    assert paired.judge(same, slower, 70.0)["delayed"]["covered"] <= 8
    differing = [one._replace(p=0.01) for one in same]
    judged = paired.judge(differing, slower, 100.0)["a_a"]
    assert judged["false_verdicts"] > judged["binomial_bound"]


def test_a_block_is_its_eight_runs_and_one_with_a_void_run_is_none() -> None:
    random = np.random.default_rng(2)
    journal = events(random, "ab", 3, 50.0, bursts=False)
    (first, second, third) = paired.blocks_of(journal, "ab", "median_ttft_ms")
    assert (first.n, second.n, third.n) == (4, 4, 4)
    values = [event["run"]["metrics"]["median_ttft_ms"] for event in journal if event["event"] == "run"][:8]
    a, b, c, d, e, f, g, h = values
    assert first.value == pytest.approx((b - a + c - d + f - e + g - h) / 4)
    next(event for event in journal if event["event"] == "run" and event["block"] == 3)["void"].append("cut off")
    assert paired.blocks_of(journal, "ab", "median_ttft_ms") == [first, third]
    assert paired.blocks_of(journal[:-1], "ab", "median_ttft_ms") == [first]


def test_a_measurement_from_its_first_run_to_its_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the server: the plan, the blocks of both kinds, the report, and that a finished one starts no server."""
    random = np.random.default_rng(4)
    started: list[str] = []
    world = World()

    def run(comparison: Any, units: Any, journal: Any, target: Any, tokenizer: str) -> None:
        started.append(target)

        def load(name: str, file: Path) -> str:
            assert world.arm is not None
            cell = world.cells["isl64-osl1-conc1"]
            world.calls += 10
            world.tokens += (cell.prompts + 1) * cell.isl
            file.write_text(raw(cell, 40.0 + 100.0 * (world.arm.name == "B") + random.normal(0.0, 1.0)))
            return ""

        world.cells = {"isl64-osl1-conc1": Cell(64, 1, 1, 3)}
        world.script = load
        parts: Any = world
        settings = paired.Settings("model", 5.0, 1.0)
        assert paired.Bench(comparison, units, journal, parts, parts, parts, world.prove, settings).run() == ""

    monkeypatch.setattr(paired.server, "start", lambda spec: contextlib.nullcontext(SimpleNamespace(model_dir="m")))
    monkeypatch.setattr(paired, "Delayed", lambda running, delay_ms: "target")
    monkeypatch.setattr(paired, "run", run)
    for _ in range(2):
        found = paired.measure(tmp_path, 1, Cell(64, 1, 1, 3), 5, 50.0)
        assert (found["truth_ms"], found["verdict"], found["void_blocks"]) == (100.0, "slower", [])
        assert (found["a_a"]["blocks"], found["delayed"]["blocks"], found["delayed"]["found"]) == (5, 5, 5)
        assert found["difference"]["value"] == pytest.approx(100.0, abs=2.0)
    assert started == ["target"]
    assert len(world.loads) == 2 * 5 * 8
