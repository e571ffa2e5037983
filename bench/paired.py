"""The paired benchmark against a real lab server whose kernel is slower by a known time.

    python bench/paired.py [--blocks 40] [--delay 25] [--prompts 6] [--port 36050] [--folder DIR] [--out FILE]

Three parts, with the real load generator, at concurrency 1: blocks of an arm against itself; blocks of an arm against
one whose emulated kernel sleeps ``delay`` ms in each call, so that the truth is layers x passes x delay for a prompt's
time to the first token; and a server whose flag did not take, which must be void. The interval of a block comes from
the prompts that both arms are sent: the mean of their paired differences. Given a folder, an interrupted run goes on.
"""

from __future__ import annotations

import argparse
import platform
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
from fastfill.benchmark.proven import prove
from fastfill.benchmark.run import Bench, Settings
from fastfill.lab import command, runs, server
from fastfill.lab.server import LabServer
from fastfill.lab.spec import LabSpec
from fastfill.serving.profile import load

LAYERS = 2
PASSES = 1
MODULES = (
    "analyse", "arms", "journal", "load", "loader", "measured", "proven", "run", "schedule", "setup", "stats", "target",
    "verdict",
)  # fmt: skip
SOURCES = [
    "bench/paired.py",
    *(f"launch/fastfill/benchmark/{name}.py" for name in MODULES),
    "launch/fastfill/lab/emulator/aiter/_asm.py",
    "launch/fastfill/lab/emulator/aiter/_trace.py",
]


class Delayed:
    """A server that is both arms: B is the one whose kernel sleeps."""

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


def paired_differences(block: list[dict[str, Any]]) -> list[float]:
    """Right less left, in ms, of each prompt: a pair's two runs are sent the same ones, in the same order."""
    found: list[float] = []
    ordered = sorted(block, key=lambda run: run["step"])
    for pair in (ordered[:2], ordered[2:]):
        left, right = sorted(pair, key=lambda run: run["side"])
        found += [b - a for a, b in zip(left["run"]["ttft_ms"], right["run"]["ttft_ms"], strict=True)]
    return found


def intervals(events: list[dict[str, Any]], kind: str) -> list[stats.Estimate]:
    """One interval a whole block."""
    good = [run for run in analyse.counted(events) if run["kind"] == kind and not run["void"]]
    blocks = {run["block"]: [one for one in good if one["block"] == run["block"]] for run in good}
    found = (stats.mean(paired_differences(block)) for _, block in sorted(blocks.items()) if len(block) == 4)
    return [one for one in found if one is not None]


def measure(folder: Path, port: int, cell: Cell, blocks: int, delay_ms: float) -> dict[str, Any]:
    """Both kinds of blocks on one server."""
    profile = load("long-context")
    both = (Arm("A", profile, "on", True), Arm("B", profile, "on", True))
    difference = arms.Difference("env", "emulated kernel", "as it is", f"{delay_ms:g} ms slower a call")
    comparison = Comparison(*both, (difference,), "path", "")
    wish = setup.Wish("long-context", "long-context", "", blocks, blocks, "mean_ttft_ms", url=f"port {port}")
    journal = Journal(folder, setup.describe(wish, comparison, [cell]))
    # The tiny vocabulary makes prompts begin alike now and then: from the cache, one would take another path.
    with server.start(LabSpec(port=port, flags=("--disable-radix-cache",))) as running:
        connection = Connection(running.url)
        python, env = setup.find_interpreter(None)
        with Loader(python, env, folder / "client.log") as loader:
            stopped = Bench(
                comparison,
                list(schedule.units([cell], blocks=blocks, noise=blocks, switch="path")),
                journal,
                Delayed(running, delay_ms),
                connection,
                loader,
                lambda arm: prove(connection, arm, deadline_s=120, prompt_tokens=64),
                Settings(str(running.model_dir), 120.0, 60.0),
            ).run()
    if stopped:
        sys.exit(f"stopped: {stopped}")
    document = report.write(folder)
    truth = LAYERS * PASSES * delay_ms
    same, slower = intervals(journal.events, "aa"), intervals(journal.events, "ab")
    false = sum(one.p < stats.ALPHA for one in same)
    return {
        "truth_ms": truth,
        "a_a": {
            "blocks": len(same),
            "false_verdicts": false,
            # How many of these blocks a sound test of 5 % exceeds in one run of a hundred.
            "binomial_bound": int(scipy_stats.binom.ppf(0.99, len(same), stats.ALPHA)),
            "covered": sum(one.low <= 0.0 <= one.high for one in same),
        },
        "delayed": {
            "blocks": len(slower),
            "found": sum(one.low > 0.0 for one in slower),
            "covered": sum(one.low <= truth <= one.high for one in slower),
            "mean_ms": sum(one.value for one in slower) / len(slower),
            "half_width_ms": sum(one.high - one.low for one in slower) / 2 / len(slower),
        },
        "verdict": document.cells[0].verdict,
        "void_blocks": document.cells[0].void_blocks,
        "load": document.provenance.load,
    }


def not_taken(folder: Path, port: int, words: Callable[[str], list[str]]) -> dict[str, Any]:
    """``fastfill bench ab`` on a server that was started with the flag off."""
    import json
    import subprocess

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
    parser.add_argument("--delay", type=float, default=25.0)
    parser.add_argument("--prompts", type=int, default=6)
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
