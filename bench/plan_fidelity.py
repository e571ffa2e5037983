"""Does the planner make the batches that the real scheduler makes? Step by step, on random traces.

    python bench/plan_fidelity.py [--stack sglang-0.5.16] [--traces 56] [--port 34000] [--keep FOLDER] [--out FILE]
    python bench/plan_fidelity.py --keep tests/data/plan --reuse [--stack ...] [--out FILE]

Real lab servers with different flags, overlap scheduling on, log each step. The log is replayed: every batch is
compared as a multiset of (request, prefix, extend), and the free tokens of the KV pool before it. One server serves
several traces, its caches and queues going on. What real servers logged for the committed result lies in
tests/data/plan, and every test run replays it; ``--reuse`` does so here, and starts no server.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import random_traces
import stamp

from fastfill.lab import server
from fastfill.lab.spec import LabSpec
from fastfill.planning import steplog

SOURCES = (
    "bench/plan_fidelity.py",
    "bench/random_traces.py",
    "launch/fastfill/lab/standins/fastfill_standins/steps.py",
    *(
        f"launch/fastfill/planning/{name}.py"
        for name in ("rules", "tree", "pool", "request", "admission", "hybrid", "scheduler")
    ),
    "launch/fastfill/planning/steplog.py",
)
OFF = ("--disable-radix-cache",)
SCARCE = ("--max-total-tokens", "1024", "--schedule-conservativeness", "0.05")
VARIANTS: tuple[tuple[str, tuple[str, ...], dict[str, Any]], ...] = (
    ("chunk 512, radix", ("--chunked-prefill-size", "512"), {}),
    ("no chunks, radix", ("--chunked-prefill-size", "-1", "--max-prefill-tokens", "1024"), {}),
    ("chunk 512, no radix", ("--chunked-prefill-size", "512", *OFF), {}),
    ("no chunks, no radix", ("--chunked-prefill-size", "-1", "--max-prefill-tokens", "512", *OFF), {}),
    ("mixed chunks of 256, radix", ("--chunked-prefill-size", "256", "--enable-mixed-chunk"), {}),
    ("mixed chunks of 512, no radix", ("--chunked-prefill-size", "512", "--enable-mixed-chunk", *OFF), {}),
    (
        "small pool, chunk 1024, radix",
        ("--chunked-prefill-size", "1024", "--max-total-tokens", "4096"),
        {"new": 200, "gap": 0.02},
    ),
    (
        "small pool, no chunks, no radix, at most 6",
        ("--chunked-prefill-size", "-1", "--max-total-tokens", "4096", "--max-running-requests", "6", *OFF),
        {"new": 300, "gap": 0.02},
    ),
    (
        "pages of 1, chunk 300, radix",
        ("--chunked-prefill-size", "300", "--page-size", "1", "--max-prefill-tokens", "700"),
        {"gap": 0.05},
    ),
    (
        "memory runs out, chunk 256, radix",
        ("--chunked-prefill-size", "256", *SCARCE),
        {"new": 150, "gap": 0.02, "longest": 200, "fixed": 0.0},
    ),
    (
        "memory runs out, no chunks, radix",
        ("--chunked-prefill-size", "-1", *SCARCE),
        {"new": 150, "gap": 0.02, "longest": 150, "fixed": 0.0},
    ),
    (
        "memory runs out, no chunks, no radix",
        ("--chunked-prefill-size", "-1", *SCARCE, *OFF),
        {"new": 150, "gap": 0.02, "longest": 150, "fixed": 0.0},
    ),
    ("linear-attention layers, chunk 512, radix", ("--chunked-prefill-size", "512"), {"model": "hybrid", "gap": 0.2}),
    (
        "linear-attention layers, no chunks, radix",
        ("--chunked-prefill-size", "-1", "--max-prefill-tokens", "1024"),
        {"model": "hybrid", "gap": 0.05, "longest": 900, "new": 80},
    ),
)


def run(flags: tuple[str, ...], options: dict[str, Any], seeds: list[int], stack: str, port: int, log: Path) -> None:
    """Serve some traces with one set of flags; the scheduler's steps go to ``log``."""
    options = dict(options)
    spec = LabSpec(
        model=options.pop("model", "dense"),
        port=port,
        stack=stack,
        flags=flags,
        allow=("all",),
        env={"FASTFILL_LAB_STEPS": str(log)},
    )
    with server.start(spec) as lab:
        for seed in seeds:
            random_traces.send(lab.url, random_traces.trace(seed, **options), f"t{seed}")
            time.sleep(0.3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stack", default="sglang-0.5.16")
    parser.add_argument("--traces", type=int, default=56, help="how many, divided over the variants")
    parser.add_argument("--variant", type=int, action="append", help="only these, by number")
    parser.add_argument("--port", type=int, default=34000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="where the logs go [a temporary folder]")
    parser.add_argument("--reuse", action="store_true", help="replay the logs that are kept; start no server")
    parser.add_argument("--out", type=Path, help="write the result file here")
    arguments = parser.parse_args()
    place = tempfile.TemporaryDirectory()
    kept = arguments.keep or Path(place.name)
    kept.mkdir(parents=True, exist_ok=True)
    each = -(-arguments.traces // len(VARIANTS))
    rows = []
    for number, (name, flags, options) in enumerate(VARIANTS):
        if arguments.variant and number not in arguments.variant:
            continue
        log = (kept / f"{arguments.stack}-{number}.jsonl").resolve()
        if arguments.reuse:
            log = log if log.is_file() else log.with_suffix(".jsonl.gz")
            if not log.is_file():
                continue
        else:
            seeds = [arguments.seed * 1000 + number * 100 + k for k in range(each)]
            run(flags, options, seeds, arguments.stack, arguments.port, log)
        rules, settings, lines = steplog.read(log)
        found = steplog.replay(rules, settings, lines)
        row = {
            "variant": name,
            "flags": list(flags),
            "traces": len({r.split("-")[0] for r in found.names if r.startswith("t")}),
            "requests": found.requests,
            "batches": found.batches,
            "prefill_batches": found.prefills,
            "split": found.split,
            "radix_hits": found.hits,
            "retractions": found.retractions,
            "overlap": settings.overlap,
            "mismatches": len(found.mismatches),
        }
        rows.append(row)
        print(row, flush=True)
        for mismatch in found.mismatches[:3]:
            print("  ", mismatch, file=sys.stderr)
    if arguments.out:
        stamp.write(
            arguments.out,
            "fastfill.plan_fidelity/1",
            " ".join(["python bench/plan_fidelity.py", *sys.argv[1:]]),
            list(SOURCES),
            sglang=arguments.stack.removeprefix("sglang-"),
            traces=sum(row["traces"] for row in rows),
            rows=rows,
        )


if __name__ == "__main__":
    main()
