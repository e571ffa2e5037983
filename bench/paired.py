"""The paired benchmark against a real lab server whose kernel is slower by a known time.

    python bench/paired.py [--blocks 40] [--delay 50] [--prompts 3] [--port 36050] [--folder DIR] [--out FILE]

Three parts, with the real load generator, at concurrency 1: blocks of an arm against itself; between them, blocks of
an arm against one whose emulated kernel takes ``delay`` ms more in each call, so that the truth is layers x passes x
delay for a prompt's time to the first token; and a server whose flag did not take, which must be void. Given a folder,
an interrupted run goes on.

A block is two of the benchmark's, A B B A A B B A: four pairs of neighbouring runs, each one difference of medians, and
Student's interval over them. The runs are what is independent, not the prompts of a run: whoever else uses the machine
slows all of those.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import stamp
from scipy import stats as scipy_stats

from fastfill.benchmark import analyse, arms, report, schedule, setup, stats
from fastfill.benchmark.arms import Arm, Comparison
from fastfill.benchmark.connection import Connection
from fastfill.benchmark.grid import Cell
from fastfill.benchmark.journal import Journal
from fastfill.benchmark.load import Loader
from fastfill.benchmark.proven import Proof, prove
from fastfill.benchmark.run import Bench, Settings
from fastfill.lab import command, runs, server
from fastfill.lab.server import LabServer
from fastfill.lab.spec import LabSpec
from fastfill.serving.profile import load

METRIC = "median_ttft_ms"
LAYERS = 2
PASSES = 1
PARTS = 2
"""The benchmark's blocks in one of these."""
MODULES = (
    "analyse", "arms", "connection", "journal", "load", "loader", "measured", "proven", "run", "schedule", "stats",
    "verdict",
)  # fmt: skip
SOURCES = [
    "bench/paired.py",
    *(f"launch/fastfill/benchmark/{name}.py" for name in MODULES),
    "launch/fastfill/lab/emulator/aiter/_asm.py",
    "launch/fastfill/lab/emulator/aiter/_trace.py",
]


class Delayed:
    """A server that is both arms: B is the one whose kernel takes longer."""

    def __init__(self, running: LabServer, delay_ms: float) -> None:
        self.url = running.url
        self.described = "a lab server, its emulated kernel delayed for arm B"
        self._file = runs.folder(running.spec.port) / command.DELAY
        self._delay_ms = delay_ms

    def take(self, arm: Arm) -> bool:
        """Write or remove the delay."""
        if arm.name == "B":
            self._file.write_text(str(self._delay_ms))
        else:
            self._file.unlink(missing_ok=True)
        return False

    def close(self) -> None:
        """No delay."""
        self._file.unlink(missing_ok=True)


def blocks_of(events: list[dict[str, Any]], kind: str, metric: str) -> list[stats.Estimate]:
    """Right less left, in ms, of each whole block that nothing stands against."""
    runs = [run for run in analyse.counted(events) if run["kind"] == kind]
    parts: dict[int, list[dict[str, Any]]] = {}
    for run in sorted(runs, key=lambda run: (run["block"], run["step"])):
        parts.setdefault((run["block"] - 1) // PARTS, []).append(run)
    found = []
    for block in parts.values():
        if len(block) == 4 * PARTS and not any(run["void"] for run in block):
            pairs = zip(block[::2], block[1::2], strict=True)
            ordered = (sorted(pair, key=lambda run: str(run["side"])) for pair in pairs)
            found.append([right["run"]["metrics"][metric] - left["run"]["metrics"][metric] for left, right in ordered])
    return [one for one in map(stats.mean, found) if one is not None]


def judge(same: list[stats.Estimate], slower: list[stats.Estimate], truth: float) -> dict[str, Any]:
    """Both kinds of blocks, held against what is true of them."""

    def middle(blocks: list[stats.Estimate]) -> float:
        return round(statistics.median(one.high - one.value for one in blocks), 3)

    return {
        "a_a": {
            "blocks": len(same),
            "false_verdicts": sum(one.p < stats.ALPHA for one in same),
            # More than this a sound test of 5 % has in one of a hundred measurements of so many blocks.
            "binomial_bound": int(scipy_stats.binom.ppf(0.99, len(same), stats.ALPHA)),
            "half_width_ms": middle(same),
        },
        "delayed": {
            "blocks": len(slower),
            "found": sum(one.low > 0.0 for one in slower),
            "covered": sum(one.low <= truth <= one.high for one in slower),
            "mean_ms": round(statistics.fmean(one.value for one in slower), 3),
            "half_width_ms": middle(slower),
        },
        "intervals_ms": {
            name: [[round(one.low, 3), round(one.high, 3)] for one in blocks]
            for name, blocks in (("a_a", same), ("delayed", slower))
        },
    }


def run(comparison: Comparison, units: list[schedule.Unit], journal: Journal, target: Delayed, tokenizer: str) -> None:
    """What is left of the blocks."""
    connection = Connection(target.url)
    python, env = setup.find_interpreter(None)

    def proof(arm: Arm) -> Proof:
        return prove(connection, arm, deadline_s=120, prompt_tokens=64)

    settings = Settings(tokenizer, 120.0, 60.0)
    with Loader(python, env, journal.folder / "client.log") as loader:
        stopped = Bench(comparison, units, journal, target, connection, loader, proof, settings).run()
    if stopped:
        sys.exit(f"stopped: {stopped}")


def measure(folder: Path, port: int, cell: Cell, blocks: int, delay_ms: float) -> dict[str, Any]:
    """Both kinds of blocks on one server."""
    profile = load("long-context")
    both = (Arm("A", profile, "on", True), Arm("B", profile, "on", True))
    difference = arms.Difference("env", "emulated kernel", "as it is", f"{delay_ms:g} ms slower a call")
    comparison = Comparison(*both, (difference,), "path", "")
    wish = setup.Wish("long-context", "long-context", "", PARTS * blocks, PARTS * blocks, METRIC, url=f"port {port}")
    journal = Journal(folder, setup.describe(wish, comparison, [cell]))
    units = list(schedule.units([cell], blocks=PARTS * blocks, noise=PARTS * blocks, switch="path"))
    if len(journal.finished()) < len(units):
        # The tiny vocabulary makes prompts begin alike now and then: from the cache, one would take another path.
        with server.start(LabSpec(port=port, flags=("--disable-radix-cache",))) as running:
            run(comparison, units, journal, Delayed(running, delay_ms), str(running.model_dir))
    document = report.write(folder)
    truth = LAYERS * PASSES * delay_ms
    (shown,) = document.cells
    return {
        "truth_ms": truth,
        **judge(*(blocks_of(journal.events, kind, METRIC) for kind in ("aa", "ab")), truth),
        "verdict": shown.verdict,
        "difference": None if shown.difference is None else shown.difference.model_dump(),
        "void_blocks": shown.void_blocks,
        "interruptions": document.interruptions,
        "load": document.provenance.load,
    }


def not_taken(folder: Path, port: int, words: Callable[[str], list[str]]) -> dict[str, Any]:
    """``fastfill bench ab`` on a server that was started with the flag off."""
    with server.start(LabSpec(port=port, profile="off")) as running:
        done = subprocess.run(words(running.url), capture_output=True, text=True, check=False, timeout=600)
    document = json.loads(done.stdout)
    return {
        "exit_code": done.returncode,
        "verdict": document["cells"][0]["verdict"],
        "why": document["cells"][0]["why"],
    }


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=40)
    parser.add_argument("--delay", type=float, default=50.0)
    parser.add_argument("--prompts", type=int, default=3)
    parser.add_argument("--port", type=int, default=36050)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--out", type=Path)
    wanted = parser.parse_args()
    folder = wanted.folder or Path(tempfile.mkdtemp())
    cell = Cell(64, 1, 1, wanted.prompts)
    found = measure(folder / "paired", wanted.port, cell, wanted.blocks, wanted.delay)

    def words(url: str) -> list[str]:
        argv = [sys.executable, "-m", "fastfill", "bench", "ab", "--a", "off", "--b", "long-context", "--url", url]
        argv += ["--grid", "isl=64 osl=1 conc=1 prompts=4", "--blocks", "3", "--out", str(folder / "not-taken")]
        return [*argv, "--probe-tokens", "64", "--json"]

    fields = {
        "host": {"machine": platform.machine(), "cpus": psutil.cpu_count()},
        "arguments": {"blocks": wanted.blocks, "delay_ms": wanted.delay, "prompts": wanted.prompts},
        **found,
        "flag_not_taken": not_taken(folder, wanted.port, words),
    }
    print(fields)
    if wanted.out:
        stamp.write(
            wanted.out, "fastfill.paired/1", "python bench/paired.py --out results/paired.json", SOURCES, **fields
        )


if __name__ == "__main__":
    main()
