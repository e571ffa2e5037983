"""Every SGLang release that the lab runs, every kind of model: predicted, seen on a real server, and proven.

``python bench/sweep.py --out results/sweep.json``, about 25 minutes on two idle cores. A case is one server: a stack, a
model, a KV cache. On it: what `explain` says against which kernels run (a fresh prompt, a prompt of three chunks, a
cached prefix, a request that asks for the fallback), coverage, answers against Hugging Face in fp32, and `prove`. Every
case is written at once; a sweep that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from observe import AITER, Case, Observed, Row, run_all, table
from stamp import source_sha256, write

from fastfill.lab import stacks

# What the outcome rests on. Of the patched stacks the series; the gate behind it is run by every `make test`.
SOURCES = [
    "bench/observe.py",
    *(f"launch/fastfill/explaining/{name}" for name in ("releases.toml", "deployment.py", "batch.py", "verdict.py")),
    *(f"launch/fastfill/lab/emulator/aiter/{name}" for name in ("ops/mha.py", "_asm.py", "_ck.py")),
    *(f"requirements/{name}.txt" for name in ("lab", *(f"lab-{version}" for version in stacks.RELEASES[1:]))),
]
MODELS = (
    ("dense", "fp8_e4m3"),
    ("dense", "auto"),
    ("dense-gqa6", "fp8_e4m3"),
    ("dense-hd128", "fp8_e4m3"),
    ("dense-scales", "fp8_e4m3"),
)
HYBRID = ("sglang-0.5.16", "sglang-0.5.23")


def cases() -> list[Case]:
    """Dense models on every stack, the hybrid one on the two that are patched."""
    dense = [Case(stack, model, kv) for model, kv in MODELS for stack in stacks.names()]
    return dense + [Case(stack, "hybrid") for stack in HYBRID]


def record(row: Row) -> dict[str, Any]:
    """A row as it is kept."""
    value = asdict(row)
    return {"stack": row.case.stack, "model": row.case.model, "kv": row.case.kv, "agrees": row.agrees} | {
        name: value[name] for name in ("predicted", "reason", "observed", "proof")
    }


def row_of(kept: dict[str, Any]) -> Row:
    """The inverse of :func:`record`."""
    case = Case(kept["stack"], kept["model"], kept["kv"])
    return Row(case, kept["predicted"], kept["reason"], Observed(**kept["observed"]), kept["proof"])


def _begun(part: Path, digest: str) -> dict[Case, Row]:
    """What an interrupted sweep of the same sources has done."""
    if not part.exists():
        return {}
    kept = [json.loads(line) for line in part.read_text().splitlines()]
    rows = [row_of(entry) for entry in kept if entry["source_sha256"] == digest]
    return {row.case: row for row in rows}


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="write the stamped result here")
    parser.add_argument("--stack", action="append", help="only this one, into no file; may be repeated")
    parser.add_argument("--port", type=int, action="append", help="a port for a server; as many servers at a time")
    given = parser.parse_args()
    wanted = [case for case in cases() if not given.stack or case.stack in given.stack]
    part = Path((given.out or Path("sweep.json")).with_suffix(".part"))
    digest = source_sha256(SOURCES)
    done = _begun(part, digest)
    ports = given.port or [32101]
    missing = [case for case in wanted if case not in done]
    for start in range(0, len(missing), len(ports)):
        for row in run_all(missing[start : start + len(ports)], ports):
            done[row.case] = row
            with part.open("a") as file:
                file.write(json.dumps(record(row) | {"source_sha256": digest}) + "\n")
            print(table([row]).splitlines()[1], flush=True)
    rows = [done[case] for case in wanted]
    print("\n" + table(rows))
    if given.out and not given.stack:
        kept = [record(row) for row in rows]
        write(given.out, "fastfill.sweep/1", "make sweep", SOURCES, aiter=AITER, cases=len(kept), rows=kept)
        part.unlink()
    disagreeing = [row.case.name for row in rows if not row.agrees]
    if disagreeing:
        sys.exit(f"{len(disagreeing)} case(s) where the server did something else: {', '.join(disagreeing)}")


if __name__ == "__main__":
    main()
