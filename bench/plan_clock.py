"""The planner's clock against the real server's, and its recommendation against upstream's advice, in the lab.

    python bench/plan_clock.py [--traces 20] [--runs 3] [--port 34040] [--out FILE]

Each trace goes to the real lab server several times at its own arrival times, with upstream's two settings scaled to
the lab (a chunk of the longest prompt's size; no chunks, with that as max-prefill-tokens) and with what the planner
recommends from constants that `fastfill plan calibrate` measured on that server. Two runs are as far apart as the share
of prefill batches, as multisets of (request, prefix, extend), that they do not have in common. The bar: the planner is
no farther from the real runs than these are from each other, and 5 points. Coverage is by the server's own counters;
the recommendation must beat both of upstream's settings in it, or tie.
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
GRID = [(chunk, max(chunk, 16384)) for chunk in (256, 512, 1024)] + [(-1, most) for most in (128, 256, 512, 1024)]
UPSTREAM = {"65536, scaled": (LONGEST, 16384), "-1 with 65536, scaled": (-1, LONGEST)}
Shapes = Counter[tuple[tuple[int, int, int], ...]]


def trace(seed: int) -> list[random_traces.Sent]:
    """Answers of known length, so that two runs do the same work; no shared beginnings: the cache is off."""
    sent = random_traces.trace(seed, requests=20, longest=LONGEST, gap=(0.05, 0.15, 0.4)[seed % 3], new=16)
    return [one._replace(ignore_eos=True) for one in sent]


def settings(chunk: int, most: int, log: Path | None = None) -> Settings:
    """The model's settings: the server's own, once there is a log of it."""
    if log is not None:
        return steplog.read(log)[1]
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


def real(log: Path, name: str, skip: int) -> tuple[Shapes, int]:
    """A real run's batches, from the lines of the server's step log after the first ``skip``."""
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    shapes: Shapes = Counter()
    for line in lines[skip:]:
        batch = line.get("batch")
        if batch and batch["kind"] != "decode":
            members = [m for m in batch["members"] if m[0].startswith(f"{name}-")]
            if members:
                shapes[tuple(sorted((int(m[0].rsplit("-", 1)[1]), m[1], m[2]) for m in members))] += 1
    return shapes, len(lines)


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


def serve(
    label: str, flags: tuple[int, int], traces: dict[int, Any], arguments: Any, folder: Path
) -> list[dict[str, Any]]:
    """One server: calibrate, send every trace some times, compare. What is in the folder already is not run again."""
    chunk, most = flags
    done = folder / f"{chunk}-{most}.rows.json"
    if done.is_file():
        return [{**row, "setting": label} for row in json.loads(done.read_text())]
    log = folder / f"{chunk}-{most}.jsonl"
    words = ("--chunked-prefill-size", str(chunk), "--max-prefill-tokens", str(most), "--disable-radix-cache")
    # On one core, so that what receives requests has the other: a GPU's passes take it no time either.
    env = {"FASTFILL_LAB_STEPS": str(log), "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    spec = LabSpec(port=arguments.port, stack=arguments.stack, flags=words, allow=("all",), env=env)
    rows = []
    with server.start(spec) as lab:
        constants = folder / f"{chunk}-{most}.json"
        argv = [sys.executable, "-m", "fastfill", "plan", "calibrate", "--url", lab.url, "--out", str(constants)]
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, timeout=300)
        times = figures.calibrated(constants)
        found = rules(arguments.stack.removeprefix("sglang-").removesuffix("-unpatched"), gfx950=False)
        for seed, sent in traces.items():
            runs: list[Shapes] = []
            covered: list[float] = []
            for number in range(arguments.runs):
                skip = len(log.read_text().splitlines())
                before = work(lab.url)
                random_traces.send(lab.url, sent, f"t{seed}r{number}")
                time.sleep(0.2)
                after = work(lab.url)
                runs.append(real(log, f"t{seed}r{number}", skip)[0])
                covered.append((after["asm"] - before["asm"]) / max(after["all"] - before["all"], 1.0))
            outcome, mine = simulate(sent, settings(chunk, most, log), times, found)
            apart = [distance(a, b) for a, b in itertools.combinations(runs, 2)]
            row = {
                "setting": label,
                "chunk": chunk,
                "max_prefill": most,
                "trace": seed,
                "real_to_real": round(statistics.mean(apart), 4),
                "planner_to_real": round(statistics.mean(distance(mine, one) for one in runs), 4),
                "coverage_real": [round(one, 4) for one in covered],
                "coverage_planner": round(outcome.coverage.of_work, 4),
            }
            rows.append(row)
            print(row, flush=True)
    done.write_text(json.dumps(rows))
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
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--port", type=int, default=34040)
    parser.add_argument("--keep", type=Path, help="folder for logs and rows; a run that was cut goes on there")
    parser.add_argument("--out", type=Path, help="write the result file here")
    arguments = parser.parse_args()
    traces = {seed: trace(seed) for seed in range(arguments.traces)}
    found = rules(arguments.stack.removeprefix("sglang-").removesuffix("-unpatched"), gfx950=False)
    with tempfile.TemporaryDirectory() as place:
        folder = (arguments.keep or Path(place)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        rows = []
        for label, flags in UPSTREAM.items():
            rows += serve(label, flags, traces, arguments, folder)
        chosen = recommended(traces, folder / f"{LONGEST}-16384.json", found)
        print("recommended", chosen, flush=True)
        if chosen in UPSTREAM.values():
            same = next(label for label, flags in UPSTREAM.items() if flags == chosen)
            rows += [{**row, "setting": f"recommended ({same})"} for row in rows if row["setting"] == same]
        else:
            rows += serve("recommended", chosen, traces, arguments, folder)
    means = {
        label: round(
            statistics.mean(statistics.mean(row["coverage_real"]) for row in rows if row["setting"] == label), 4
        )
        for label in dict.fromkeys(row["setting"] for row in rows)
    }
    mine = next(mean for label, mean in means.items() if label.startswith("recommended"))
    against = {label: judged(mine - means[label]) for label in UPSTREAM}
    apart = statistics.mean(row["real_to_real"] for row in rows)
    planner = statistics.mean(row["planner_to_real"] for row in rows)
    print(f"real to real {apart:.3f}, planner to real {planner:.3f}; real coverage {means}; recommended {against}")
    if arguments.out:
        stamp.write(
            arguments.out,
            "fastfill.plan_clock/1",
            f"python bench/plan_clock.py --stack {arguments.stack} --out {arguments.out}",
            list(SOURCES),
            sglang=found.release,
            runs=arguments.runs,
            recommended={"chunk": chosen[0], "max_prefill": chosen[1]},
            real_to_real=round(apart, 4),
            planner_to_real=round(planner, 4),
            coverage_real=means,
            recommended_against=against,
            rows=rows,
        )


if __name__ == "__main__":
    main()
