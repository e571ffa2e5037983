"""``plan --calibration`` with a report of ``fastfill bench ab``: of a made-up server, whose constants are found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bench_fakes import WISH, World, bench
from cli_run import fastfill

from fastfill.benchmark import report
from fastfill.benchmark.grid import Cell
from fastfill.errors import UsageError
from fastfill.planning import figures
from fastfill.planning.times import Times

pytest.importorskip("scipy")
pytest.importorskip("matplotlib")
REAL = Times(pass_=0.0, token=4e-5, pair_fast=1e-8, pair_slow=3e-8, decode=0.010, row=0.002, cached=1e-7)
FIRST = 0.04
OSL = 9
CONFIG = Path(__file__).resolve().parents[1] / "data" / "configs" / "qwen3.5-397b-a17b.json"


class Timed(World):
    """A server whose every time follows from ``REAL``."""

    def well(self, name: str, file: Path) -> str:
        failed = super().well(name, file)
        cell = next(cell for key, cell in self.cells.items() if key in name)
        document: dict[str, Any] = json.loads(file.read_text())
        assert self.arm is not None
        rate = REAL.pair_fast if self.arm.fires else REAL.pair_slow
        first = FIRST + REAL.token * cell.isl + rate * cell.isl**2 / 2
        step = REAL.steps(cell.conc, cell.conc * (cell.isl + OSL // 2), 1)
        # With several clients most requests wait; one in twenty does not.
        waited = [first if cell.conc == 1 or n % 10 == 0 else 3 * first for n in range(cell.prompts)]
        document["ttfts"] = waited
        document["median_ttft_ms"] = 1e3 * sorted(waited)[cell.prompts // 2]
        document["median_itl_ms"] = 1e3 * step
        # Ten times as long as the first token takes to come would leave nine in ten of the clients decoding.
        document["median_e2e_latency_ms"] = 1e9
        file.write_text(json.dumps(document) + "\n")
        return failed


def made(folder: Path, *cells: tuple[int, int]) -> Path:
    """``report.json`` of a benchmark with cells of these prompt lengths and clients."""
    grid = [Cell(isl, OSL, conc, 20) for isl, conc in cells]
    world = Timed()
    world.context = 1 << 20
    running, _ = bench(folder, world, WISH, grid)
    assert running.run() == ""
    report.write(folder)
    return folder / "report.json"


def test_three_lengths_tell_every_constant(tmp_path: Path) -> None:
    found = figures.calibrated(made(tmp_path, (512, 1), (2048, 1), (2048, 4), (8192, 1), (8192, 8)))
    for name in ("token", "pair_fast", "pair_slow", "decode", "row", "cached"):
        assert getattr(found.times, name) == pytest.approx(getattr(REAL, name), rel=0.02), name
    # The made-up server says that it is on a CPU: there a token is told a decode step late.
    late = found.times.decode + found.times.row
    assert found.times.pass_ + found.times.answer + late == pytest.approx(FIRST, rel=0.02)
    assert found.measured and found.blocking and "within 0 %" in found.source
    assert found.source.startswith("benchmark of model on ") and "taken not to have waited" not in found.source


def test_two_lengths_take_the_pass_from_a_decode_step_and_say_so(tmp_path: Path) -> None:
    found = figures.calibrated(made(tmp_path, (2048, 4), (8192, 4)))
    assert found.times.pair_slow - found.times.pair_fast == pytest.approx(2e-8, rel=0.02)
    assert found.times.pass_ + found.times.answer == pytest.approx(found.times.decode + found.times.row)
    assert "two prompt lengths only" in found.source and "taken not to have waited" in found.source


def test_one_length_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="1 prompt lengths"):
        figures.calibrated(made(tmp_path, (2048, 1), (2048, 4)))


def test_a_report_that_is_none_names_its_fault(tmp_path: Path) -> None:
    file = made(tmp_path, (512, 1), (2048, 1))
    document = json.loads(file.read_text())
    del document["cells"][0]["isl"]
    file.write_text(json.dumps(document))
    with pytest.raises(UsageError, match=r"no report of fastfill bench: cells\.0\.isl"):
        figures.calibrated(file)


def test_void_cells_tell_nothing(tmp_path: Path) -> None:
    file = made(tmp_path, (512, 1), (2048, 1))
    document = json.loads(file.read_text())
    document["timings"] |= {"prefills": [], "decodes": []}
    for cell in document["cells"]:
        cell["verdict"] = "void"
    file.write_text(json.dumps(document))
    with pytest.raises(UsageError, match="no times between tokens"):
        figures.calibrated(file)


def test_the_command_takes_it(tmp_path: Path) -> None:
    file = made(tmp_path, (512, 1), (2048, 1), (8192, 1))
    done = fastfill(
        "plan", "--workload", "isl=2000,osl=20,conc=4,requests=12", "--model", str(CONFIG), "--tp", "4",
        "--calibration", str(file), "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    told = json.loads(done.out)["time_model"]
    assert told["measured"] and told["note"] == "" and told["source"].startswith("benchmark of model")
    assert told["seconds"]["token"] == pytest.approx(REAL.token, rel=0.02)
