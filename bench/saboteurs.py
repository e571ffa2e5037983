"""Runs every saboteur of tests/data/saboteurs.json that is in a real server: ``python bench/saboteurs.py --out FILE``.

Faults of the kernel run on a model of random weights and on the trained one, so that the result says which of the two
checks of the answers caught which fault.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import stamp

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "lab")]
import saboteurs

import saboteur_proxy
from fastfill.errors import FastfillError
from fastfill.lab import server
from fastfill.lab.spec import LabSpec
from ports import free_port

TABLE = ROOT / "tests" / "data" / "saboteurs.json"
SOURCES = [
    "bench/saboteurs.py",
    "tests/data/saboteurs.json",
    "tests/lab/saboteurs.py",
    "tests/saboteur_proxy.py",
    "tests/lab/saboteur/fastfill_saboteur/__init__.py",
    *(f"launch/fastfill/proof/{name}.py" for name in ("answers", "answers_compare", "answers_seen", "answers_send")),
    *(f"launch/fastfill/proof/{name}.py" for name in ("contradicted", "needle", "side")),
    "launch/fastfill/lab/needle/model.safetensors",
    *(f"launch/fastfill/lab/emulator/aiter/{name}.py" for name in ("_asm", "_math", "faults")),
]
TOKENS = ("--prompt-tokens", "1100")
MADE_OF = ("env", "model", "tp", "profile", "flags")


def judged(url: str, row: dict[str, Any], model: str, *asked: str) -> dict[str, Any]:
    """Prove one sabotaged server; the row of the result."""
    begun = time.monotonic()
    _, document, _ = saboteurs.prove(url, *TOKENS, *asked)
    said = {one["witness"]: one["says"] for one in document["witnesses"]}
    reason = (document["reason"] or {}).get("id", "")
    done = {
        "id": row["id"],
        "model": model,
        "verdict": document["verdict"],
        "reason": reason,
        "deserved": (document["verdict"], reason) == (row["verdict"], row["reason"])
        and ("witness" not in row or said[row["witness"]] == row["says"]),
        "checks": {one["check"]: one["status"] for one in document["answers"]["checks"]},
        "figures": {name: value for one in document["answers"]["checks"] for name, value in one["figures"].items()},
        "seconds": round(time.monotonic() - begun, 1),
    }
    print(json.dumps(done), flush=True)
    return done


def started(spec: LabSpec) -> server.LabServer:
    """A server on a port of its own."""
    return server.start(replace(spec, port=free_port(), allow=("all",)))


def running(rows: list[dict[str, Any]], model: str, tp: int) -> list[dict[str, Any]]:
    """One server, broken in one way after the other."""
    saboteurs.say("")
    done = []
    with started(saboteurs.spec(model=model, tp=tp)) as running_server:
        for row in rows:
            saboteurs.say(row["words"])
            done.append(judged(running_server.url, row, model))
    return done


def behind_proxies(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Proxies in front of a good server; some pass on to a second one as well, which the row describes."""
    saboteurs.say("")
    done = []
    with started(saboteurs.spec()) as good:
        for second, group in itertools.groupby(rows, key=lambda row: row.get("second")):
            with contextlib.ExitStack() as stack:
                servers = [good, *([stack.enter_context(started(LabSpec(**second)))] if second else [])]
                for row in group:
                    proxy = getattr(saboteur_proxy, row["proxy"])(*(one.url for one in servers))
                    with saboteur_proxy.running(proxy) as url:
                        done.append(judged(url, row, "dense"))
    return done


def restarted(row: dict[str, Any]) -> dict[str, Any]:
    """A server that is stopped and started again in the middle of its proof."""
    saboteurs.say("")
    servers = [started(saboteurs.spec())]

    def again() -> None:
        servers[-1].stop()
        servers.append(server.start(servers[-1].spec))

    try:
        with saboteur_proxy.running(saboteur_proxy.RestartsForReal(servers[0].url, again)) as url:
            return judged(url, row, "dense", "--deadline", "300")
    finally:
        servers[-1].stop()


def starting(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Servers that are broken from their start on; rows of the same server follow each other."""
    done: list[dict[str, Any]] = []
    for made, group in itertools.groupby(rows, key=lambda row: {name: row.get(name) for name in MADE_OF}):
        same = list(group)
        saboteurs.say(same[0].get("words", ""))
        more = {name: value for name, value in made.items() if value}
        try:
            with started(saboteurs.spec(**more | {"flags": tuple(more.get("flags", ()))})) as running_server:
                for row in same:
                    saboteurs.say(row.get("words", ""))
                    log = ("--witness", "counters,log", "--log", str(running_server.log_path))
                    asked = log if "witness" in row else ()
                    done.append(judged(running_server.url, row, row.get("model", "dense"), *asked))
        except FastfillError as error:
            done += [_no_server(row, error) for row in same]
    return done


def _no_server(row: dict[str, Any], error: FastfillError) -> dict[str, Any]:
    """Where no server comes up the deserved reason is what its log must say."""
    named = row["verdict"] == "no server" and row["reason"] in (error.detail or "")
    done = {"verdict": "no server", "reason": row["reason"] if named else error.what, "deserved": named}
    done = {"id": row["id"], "model": row.get("model", "dense"), **done, "checks": {}, "figures": {}, "seconds": 0.0}
    print(json.dumps(done), flush=True)
    return done


def parts(table: list[dict[str, Any]]) -> dict[str, Callable[[], list[dict[str, Any]]]]:
    """What can be run apart: each is one server, or one after the other."""
    words = [row for row in table if row["kind"] == "words"]
    one = [row for row in words if not row.get("tp")]
    starts = [row for row in table if row["kind"] == "start"]
    return {
        "dense": lambda: running(one, "dense", 1),
        "needle": lambda: running([row for row in one if of_answers(row)], "needle", 1),
        "tp2": lambda: running([row for row in words if row.get("tp")], "dense", 2),
        "start": lambda: starting(starts),
        "hybrid": lambda: running([row for row in one if row.get("hybrid")], "hybrid", 1),
        "proxies": lambda: behind_proxies([row for row in table if row["kind"] == "proxy"]),
        "restart": lambda: [restarted(row) for row in table if row["kind"] == "restart"],
    }


def of_answers(row: dict[str, Any]) -> bool:
    """Whether a row is about what the kernel answers."""
    return row["id"].startswith(("good", "kernel-", "kv-"))


def caught_by(rows: list[dict[str, Any]]) -> dict[str, list[str]]:
    """For each fault of the answers the checks that found it, with the model."""
    found: dict[str, set[str]] = {}
    for one in rows:
        if of_answers(one) and one["id"] != "good":
            wrong = {f"{check} ({one['model']})" for check, status in one["checks"].items() if status == "wrong"}
            found.setdefault(one["id"], set()).update(wrong)
    return {id: sorted(checks) for id, checks in found.items()}


def kept(file: Path) -> list[dict[str, Any]]:
    """The rows of a result file, if it is of the sources as they are now."""
    document = json.loads(file.read_text()) if file.exists() else {}
    fresh = document.get("source_sha256") == stamp.source_sha256(SOURCES) and document.get("sources") == SOURCES
    return list(document["rows"]) if fresh else []


def main() -> None:
    """Run and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--part", nargs="*", help="run these alone and keep the file's other rows, if they are fresh")
    asked = parser.parse_args()
    table = json.loads(TABLE.read_text())
    all_parts = parts(table)
    rows = kept(asked.out) if asked.part else []
    for name in asked.part or all_parts:
        done = all_parts[name]()
        again = {(one["id"], one["model"]) for one in done}
        rows = [one for one in rows if (one["id"], one["model"]) not in again] + done
        missed = [
            f"{one['id']}, {one['model']}: {one['verdict']} {one['reason']}" for one in rows if not one["deserved"]
        ]
        stamp.write(
            asked.out,
            "fastfill.saboteurs/1",
            "make prove-all",
            SOURCES,
            missed=missed,
            caught_by=caught_by(rows),
            rows=rows,
        )
    print("missed:", missed or "none")


if __name__ == "__main__":
    main()
