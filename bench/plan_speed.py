"""How long the planner takes for one candidate, and in how much memory: 10k, 100k and 1M requests.

    python bench/plan_speed.py [--sizes 10000 100000 1000000] [--keep FOLDER] [--out FILE]

Each size in a process of its own, as a stream, in seconds of that process's one core; ``load`` is how many processes
wanted a core meanwhile, which makes each slower. Two traces: long prompts without a cache, and shared prefixes with it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import stamp

from fastfill.planning.coverage import gate
from fastfill.planning.request import Request
from fastfill.planning.rules import Settings, rules
from fastfill.planning.simulate import Simulation
from fastfill.planning.source import Open
from fastfill.planning.times import Times

MODULES = (
    "rules",
    "tree",
    "pool",
    "request",
    "admission",
    "scheduler",
    "simulate",
    "source",
    "times",
    "spread",
    "coverage",
)
SOURCES = ("bench/plan_speed.py", *(f"launch/fastfill/planning/{name}.py" for name in MODULES))
TIMES = Times(pass_=0.01, token=6e-6, pair_fast=1e-11, pair_slow=3e-11, decode=0.01, row=5e-5, cached=1e-9)
CASES = {
    "long prompts, chunk 16384": Settings(16384, 65536, kv_tokens=4_000_000),
    "long prompts, no chunks": Settings(None, 65536, kv_tokens=4_000_000),
    "shared prefixes, radix, chunk 16384": Settings(16384, 65536, radix=True, kv_tokens=4_000_000),
}


def requests(count: int, shared: bool) -> Iterator[Request]:
    """1k to 60k tokens in, 50 to 1200 out, one a second on average; with prefixes of up to 20k from a thousand."""
    draw = random.Random(7)
    at = 0.0
    for number in range(count):
        at += draw.expovariate(1.0)
        length = draw.randrange(1000, 60000)
        key = b""
        if shared:
            pages = length // 16
            common = min(draw.randrange(1250), pages)
            first = draw.randrange(1000) << 32
            own = (number + 2000) << 32
            key = numpy.arange(first, first + common).tobytes() + numpy.arange(own, own + pages - common).tobytes()
        yield Request(number, at, length, draw.randrange(50, 1200), 4096, key=key)


def one(case: str, count: int) -> dict[str, Any]:
    """Run one case in this process."""
    found, settings = rules("0.5.16"), CASES[case]
    simulation = Simulation(found, settings, TIMES, gate(found, path=True, q_heads=8))
    before, start = os.getloadavg()[0], time.process_time()
    outcome = simulation.run(Open(requests(count, settings.radix)))
    return {
        "case": case,
        "requests": outcome.requests,
        "seconds": round(time.process_time() - start, 2),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "load": [round(one, 1) for one in (before, os.getloadavg()[0])],
        "prefill_batches": sum(outcome.coverage.batches.values()),
        "tokens_in": outcome.tokens_in,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--keep", type=Path, help="folder for rows; a run that was cut goes on there")
    parser.add_argument("--out", type=Path, help="write the result file here")
    parser.add_argument("--case", help="run only this, here, and print it")
    arguments = parser.parse_args()
    if arguments.keep:
        arguments.keep.mkdir(parents=True, exist_ok=True)
    if arguments.case:
        print(json.dumps(one(arguments.case, arguments.sizes[0])))
        return
    rows = []
    for case in CASES:
        for size in arguments.sizes:
            file = arguments.keep / f"{list(CASES).index(case)}-{size}.json" if arguments.keep else None
            if file is None or not file.is_file():
                argv = [sys.executable, __file__, "--case", case, "--sizes", str(size)]
                text = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
                if file is not None:
                    file.write_text(text)
            else:
                text = file.read_text()
            rows.append(json.loads(text))
            print(rows[-1], flush=True)
    if arguments.out:
        command = f"python bench/plan_speed.py --out {arguments.out}"
        machine = f"{os.cpu_count()} cores, CPython {platform.python_version()}"
        stamp.write(arguments.out, "fastfill.plan_speed/1", command, list(SOURCES), machine=machine, rows=rows)


if __name__ == "__main__":
    main()
