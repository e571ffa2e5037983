"""The planner's clock against the real server's, and its recommendation against upstream's advice, in the lab.

    python bench/plan_clock.py [--traces 20] [--first 0] [--runs 3] [--stack STACK] [--keep DIR] [--out FILE]

Each trace goes to the real lab server several times at its own arrival times, each time to a server started anew: what
is sent at once may arrive together on one server and one by one on the next, and seldom differs within one. The
settings are upstream's two, scaled to the lab (a chunk of the longest prompt's size; no chunks, with that as
max-prefill-tokens), and what the planner recommends, where that is another. Its constants are those that `fastfill plan
calibrate` measured once, on the first server. Two runs are as far apart as the share of prefill batches, as multisets
of (request, prefix, extend), that they do not have in common. The bar: the planner is no farther from the real runs
than these are from each other, and 5 points. Coverage is by the server's own counters; the recommendation must beat
both of upstream's settings in it, or tie.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import random_traces
import stamp
from prometheus_client.parser import text_string_to_metric_families

from fastfill.lab import server
from fastfill.lab.spec import LabSpec
from fastfill.planning import figures, steplog
from fastfill.planning.coverage import gate
from fastfill.planning.request import Request
from fastfill.planning.rules import Rules, Settings, rules
from fastfill.planning.simulate import Outcome, Simulation
from fastfill.planning.source import Open

MODULES = (
    "rules",
    "tree",
    "pool",
    "request",
    "admission",
    "hybrid",
    "scheduler",
    "simulate",
    "source",
    "times",
    "coverage",
    "calibrate",
    "constants",
    "fit",
    "figures",
    "steplog",
)
SOURCES = (
    "bench/plan_clock.py",
    "bench/random_traces.py",
    *(f"launch/fastfill/planning/{name}.py" for name in MODULES),
)
LONGEST = 1024
TIE = 0.01
CONSTANTS = "constants.json"
GRID = [(chunk, max(chunk, 16384)) for chunk in (256, 512, 1024)] + [(-1, most) for most in (128, 256, 512, 1024)]
UPSTREAM = {"65536, scaled": (LONGEST, 16384), "-1 with 65536, scaled": (-1, LONGEST)}
Shapes = Counter[tuple[tuple[int, int, int], ...]]
Traces = dict[int, list[random_traces.Sent]]


def trace(seed: int) -> list[random_traces.Sent]:
    """Answers of known length, so that two runs do the same work; no shared beginnings: the cache is off."""
    sent = random_traces.trace(seed, requests=14, longest=LONGEST, gap=(0.05, 0.15, 0.4)[seed % 3], new=16)
    return [one._replace(ignore_eos=True) for one in sent]


def settings(chunk: int, most: int) -> Settings:
    """The model's settings, of a server that has not been started."""
    return Settings(chunk if chunk > 0 else None, most, max_running=16, kv_tokens=32768)


def simulate(
    sent: list[random_traces.Sent], wanted: Settings, times: figures.TimeModel, found: Rules
) -> tuple[Outcome, Shapes]:
    """The planner's run."""
    shapes: Shapes = Counter()
    simulation = Simulation(
        found,
        wanted,
        times.times,
        gate(found, path=True, q_heads=4),
        blocking=times.blocking,
        watch=lambda began, seconds, batch, reason: shapes.update(
            [tuple(sorted((m[0].number, m[1], m[2]) for m in batch.members))]
        ),
    )
    requests = (Request(n, one.at, len(one.ids), one.new, ignore_eos=True) for n, one in enumerate(sent))
    return simulation.run(Open(requests)), shapes


def real(log: Path, name: str, skip: int) -> list[list[tuple[int, int, int]]]:
    """A real run's prefill batches, from the lines of the server's step log after the first ``skip``."""
    batches = []
    for line in log.read_text().splitlines()[skip:]:
        batch = json.loads(line).get("batch")
        if batch and batch["kind"] != "decode":
            members = [m for m in batch["members"] if m[0].startswith(f"{name}-")]
            if members:
                batches.append(sorted((int(m[0].rsplit("-", 1)[1]), m[1], m[2]) for m in members))
    return batches


def distance(one: Shapes, other: Shapes) -> float:
    """Share of batches that two runs do not have in common, 0 to 1."""
    return 1.0 - (one & other).total() / max(one.total(), other.total(), 1)


def work(url: str) -> dict[str, float]:
    """The server's own counter of attention work by kernel."""
    text = httpx.get(f"{url}/metrics", trust_env=False, timeout=30, follow_redirects=True).text
    done: dict[str, float] = {"asm": 0.0, "all": 0.0}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == "fastfill:prefill_attention_work_total":
                done["all"] += sample.value
                done["asm"] += sample.value if sample.labels["kernel"] == "asm" else 0.0
    return done


def measure(flags: tuple[int, int], number: int, traces: Traces, arguments: Any, folder: Path) -> dict[str, Any]:
    """One server, to which every trace goes once. What is in the folder already is not run again.

    Returns:
        To each trace's number its batches and its coverage.
    """
    chunk, most = flags
    file = folder / f"{chunk}-{most}.{number}.json"
    done: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {}
    left = {seed: sent for seed, sent in traces.items() if str(seed) not in done}
    if not left:
        return done
    log = steps(folder, flags, number)
    words = ("--chunked-prefill-size", str(chunk), "--max-prefill-tokens", str(most), "--disable-radix-cache")
    # On one core, so that what receives requests has the other: a GPU's passes take it no time either.
    env = {"FASTFILL_LAB_STEPS": str(log), "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    spec = LabSpec(port=arguments.port, stack=arguments.stack, flags=words, allow=("all",), env=env)
    with server.start(spec) as lab:
        if not (folder / CONSTANTS).is_file():
            argv = [sys.executable, "-m", "fastfill", "plan", "calibrate", "--url", lab.url]
            subprocess.run([*argv, "--out", str(folder / CONSTANTS)], check=True, timeout=900)
        for seed, sent in left.items():
            skip = len(log.read_text().splitlines())
            before = work(lab.url)
            random_traces.send(lab.url, sent, f"t{seed}r{number}")
            time.sleep(0.2)
            after = work(lab.url)
            covered = (after["asm"] - before["asm"]) / max(after["all"] - before["all"], 1.0)
            done[str(seed)] = {"batches": real(log, f"t{seed}r{number}", skip), "coverage": round(covered, 4)}
            file.write_text(json.dumps(done))
            print(f"{chunk}, {most}: run {number + 1} of trace {seed}", flush=True)
    return done


def steps(folder: Path, flags: tuple[int, int], number: int) -> Path:
    """A server's step log."""
    return folder / f"{flags[0]}-{flags[1]}.{number}.jsonl"


def serve(label: str, flags: tuple[int, int], traces: Traces, arguments: Any, folder: Path) -> list[dict[str, Any]]:
    """One setting: the real runs of every trace, beside each other and the planner's."""
    runs = [measure(flags, number, traces, arguments, folder) for number in range(arguments.runs)]
    times = figures.calibrated(folder / CONSTANTS)
    found, wanted, _ = steplog.read(steps(folder, flags, 0))
    rows = []
    for seed, sent in traces.items():
        shapes = [Counter(tuple(tuple(m) for m in batch) for batch in one[str(seed)]["batches"]) for one in runs]
        outcome, mine = simulate(sent, wanted, times, found)
        row = {
            "setting": label,
            "chunk": flags[0],
            "max_prefill": flags[1],
            "trace": seed,
            "real_to_real": round(statistics.mean(distance(a, b) for a, b in itertools.combinations(shapes, 2)), 4),
            "planner_to_real": round(statistics.mean(distance(mine, one) for one in shapes), 4),
            "coverage_real": [one[str(seed)]["coverage"] for one in runs],
            "coverage_planner": round(outcome.coverage.of_work, 4),
        }
        rows.append(row)
        print(row, flush=True)
    return rows


def recommended(traces: dict[int, Any], constants: Path, found: Rules) -> tuple[int, int]:
    """The setting of the grid with the most coverage over all traces, and of those the quickest."""
    times = figures.calibrated(constants)

    def score(flags: tuple[int, int]) -> tuple[float, float]:
        runs = [simulate(sent, settings(*flags), times, found)[0] for sent in traces.values()]
        tokens = sorted(value for run in runs for value in run.ttft)
        return round(statistics.mean(run.coverage.of_work for run in runs), 2), -tokens[int(0.99 * len(tokens))]

    return max(GRID, key=score)


def judged(points: float) -> str:
    """What a difference of mean coverage on the real server says; less than a point is a tie."""
    return "ties" if abs(points) < TIE else "beats" if points > 0 else "loses"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stack", default="sglang-0.5.16")
    parser.add_argument("--traces", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="the first trace's seed")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--port", type=int, default=34040)
    parser.add_argument("--keep", type=Path, help="folder for logs and rows; a run that was cut goes on there")
    parser.add_argument("--out", type=Path, help="write the result file here")
    arguments = parser.parse_args()
    traces = {seed: trace(seed) for seed in range(arguments.first, arguments.first + arguments.traces)}
    found = rules(arguments.stack.removeprefix("sglang-").removesuffix("-unpatched"), gfx950=False)
    with tempfile.TemporaryDirectory() as place:
        folder = (arguments.keep or Path(place)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        rows = []
        for label, flags in UPSTREAM.items():
            rows += serve(label, flags, traces, arguments, folder)
        chosen = recommended(traces, folder / CONSTANTS, found)
        print("recommended", chosen, flush=True)
        mine = next((label for label, flags in UPSTREAM.items() if flags == chosen), "recommended")
        if mine not in UPSTREAM:
            rows += serve(mine, chosen, traces, arguments, folder)
    means = {
        label: round(
            statistics.mean(statistics.mean(row["coverage_real"]) for row in rows if row["setting"] == label), 4
        )
        for label in dict.fromkeys(row["setting"] for row in rows)
    }
    against = {label: judged(means[mine] - means[label]) for label in UPSTREAM}
    apart = statistics.mean(row["real_to_real"] for row in rows)
    planner = statistics.mean(row["planner_to_real"] for row in rows)
    print(f"real to real {apart:.3f}, planner to real {planner:.3f}; real coverage {means}; recommended {against}")
    if arguments.out:
        stamp.write(
            arguments.out,
            "fastfill.plan_clock/1",
            f"python bench/plan_clock.py --stack {arguments.stack} --first {arguments.first} --out {arguments.out}",
            list(SOURCES),
            sglang=found.release,
            runs=arguments.runs,
            recommended={"setting": mine, "chunk": chosen[0], "max_prefill": chosen[1]},
            real_to_real=round(apart, 4),
            planner_to_real=round(planner, 4),
            coverage_real=means,
            recommended_against=against,
            rows=rows,
        )


if __name__ == "__main__":
    main()
