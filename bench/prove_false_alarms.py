"""Proves good lab servers again and again, idle and under traffic: ``bench/prove_false_alarms.py --out FILE``."""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import stamp

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "lab")]
import saboteurs
from client import Client, prompt

from fastfill.lab import server
from fastfill.lab.spec import LabSpec
from ports import free_port

SOURCES = [
    "bench/prove_false_alarms.py",
    *(f"launch/fastfill/proof/{name}.py" for name in ("answers", "answers_compare", "answers_seen", "answers_send")),
    *(f"launch/fastfill/proof/{name}.py" for name in ("contradicted", "needle", "side")),
    "launch/fastfill/lab/needle/model.safetensors",
]


class Traffic:
    """Others who use the server: fresh prompts, repeats with a cached prefix, and health probes that generate."""

    def __init__(self, running: server.LabServer) -> None:
        self.client = Client(running)
        self.done = threading.Event()
        self.requests = 0
        self.threads = [threading.Thread(target=work) for work in (self._fresh, self._cached, self._health)]

    def _until_done(self, send: Any, pause: float) -> None:
        while not self.done.wait(pause):
            send()
            self.requests += 1

    def _fresh(self) -> None:
        self._until_done(lambda: self.client.generate(prompt(150), new=4), 0.5)

    def _cached(self) -> None:
        ids = prompt(200)
        self._until_done(lambda: self.client.generate(ids, new=2), 1.0)

    def _health(self) -> None:
        self._until_done(lambda: self.client.http.get("/health"), 1.0)

    def __enter__(self) -> Traffic:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        for thread in self.threads:
            thread.join()


def one(url: str, model: str, traffic: bool, number: int) -> dict[str, Any]:
    """One proof; every fifth with several prompts at once, as the command does unless told otherwise."""
    begun = time.monotonic()
    load = "8" if number % 5 == 4 else "0"
    code, document, said = saboteurs.prove(url, "--load", load, "--prompt-tokens", "1100")
    answers = {
        check["check"]: {"status": check["status"], **check["figures"]} for check in document["answers"]["checks"]
    }
    row = {
        "model": model,
        "traffic": traffic,
        "load": int(load),
        "exit": code,
        "verdict": document["verdict"],
        "reason": (document["reason"] or {}).get("id", ""),
        "control": document["control"]["status"],
        "answers": answers,
        "sent_again": said.count("again "),
        "seconds": round(time.monotonic() - begun, 1),
    }
    print(json.dumps(row), flush=True)
    return row


def main() -> None:
    """Run and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=56, help="over two models, idle and under traffic")
    asked = parser.parse_args()
    rows: list[dict[str, Any]] = []
    requests = 0
    for model in ("dense", "needle"):
        # The kernel's own rounding of its softmax weights included.
        spec = LabSpec(model=model, port=free_port(), env={"AITER_EMULATOR_P_FP8": "1"})
        with server.start(replace(spec)) as running:
            rows += [one(running.url, model, False, number) for number in range(asked.runs // 4)]
            with Traffic(running) as traffic:
                rows += [one(running.url, model, True, number) for number in range(asked.runs // 4)]
            requests += traffic.requests
    alarms = [row for row in rows if row["exit"] != 0]
    stamp.write(
        asked.out,
        "fastfill.prove_false_alarms/1",
        "make prove-all",
        SOURCES,
        runs=len(rows),
        requests_of_others=requests,
        alarms=len(alarms),
        rows=rows,
    )
    print(f"{len(alarms)} alarm(s) in {len(rows)} runs")


if __name__ == "__main__":
    main()
