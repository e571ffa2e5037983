"""`fastfill plan` against a real lab server: its batches, its request log, its constants."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fastfill.lab.server import LabServer
from fastfill.lab.spec import LabSpec
from fastfill.planning import readers, steplog

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
import random_traces

Start = Callable[[LabSpec], LabServer]
TRACES = 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plan")


@pytest.fixture(scope="module")
def served(lab_server: Start, folder: Path) -> LabServer:
    """A server that splits prompts and caches prefixes, records its steps and logs its requests."""
    flags = ("--chunked-prefill-size", "512", "--log-requests", "--log-requests-level", "1")
    flags += ("--log-requests-format", "json", "--log-requests-target", str(folder / "requests"))
    server = lab_server(LabSpec(flags=flags, allow=("all",), env={"FASTFILL_LAB_STEPS": str(folder / "steps.jsonl")}))
    for seed in range(TRACES):
        random_traces.send(server.url, random_traces.trace(seed, requests=10), f"t{seed}")
        time.sleep(0.3)
    return server


@pytest.mark.server("plan")
def test_every_batch_of_the_real_scheduler(served: LabServer, folder: Path) -> None:
    rules, settings, lines = steplog.read(folder / "steps.jsonl")
    assert (settings.overlap, settings.radix, settings.chunk) == (True, True, 512)
    found = steplog.replay(rules, settings, lines)
    assert found.mismatches == []
    assert found.requests >= TRACES * 10
    assert found.prefills > 10
    assert found.split > 3
    assert found.hits > 3


@pytest.mark.server("plan")
def test_its_request_log_is_a_trace(served: LabServer, folder: Path) -> None:
    (log,) = (folder / "requests").glob("*.log")
    trace = readers.read(log)
    sent = [one for seed in range(TRACES) for one in random_traces.trace(seed, requests=10)]
    assert (
        sorted(zip(trace.n_in, trace.max_new, trace.ignore_eos, strict=True))[-5:]
        == (sorted((len(one.ids), one.new, int(one.ignore_eos)) for one in sent)[-5:])
    )
    assert trace.timed
    assert trace.lacks == ["prefix hashes"]


@pytest.mark.server("plan")
def test_calibrate_and_plan_with_it(served: LabServer, folder: Path) -> None:
    constants = folder / "constants.json"
    argv = [sys.executable, "-m", "fastfill", "plan", "calibrate", "--url", served.url, "--out", str(constants)]
    subprocess.run(argv, check=True, capture_output=True, timeout=200)
    document = json.loads(constants.read_text())
    assert document["blocking"]
    assert document["seconds"]["decode"] > 0
    assert document["seconds"]["token"] + document["seconds"]["pair_fast"] > 0
    assert {one["fast"] for one in document["prefills"]} >= {1.0, 0.0}
    assert sum(not one["client"] for one in document["prefills"]) > 3
    (log,) = (folder / "requests").glob("*.log")
    argv = [sys.executable, "-m", "fastfill", "plan", "--trace", str(log), "--model", str(served.model_dir)]
    argv += ["--calibration", str(constants), "--assume", "kv_tokens=32768", "--assume", "max_running=16", "--json"]
    plan = json.loads(subprocess.run(argv, check=True, capture_output=True, text=True, timeout=200).stdout)
    assert plan["time_model"]["measured"]
    assert plan["recommended"] is not None
