"""`fastfill bench ab` on real lab servers: a whole benchmark, interrupted once, and what goes wrong under way."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fastfill.benchmark import journal, report, setup
from fastfill.benchmark.journal import digest
from fastfill.lab import command, process, runs
from fastfill.lab.server import LabServer
from fastfill.lab.spec import LabSpec

Start = Callable[[LabSpec], LabServer]
GRID = "isl=96,20000 osl=4 conc=1 prompts=4"
FITS, TOO_LONG = "isl96-osl4-conc1", "isl20000-osl4-conc1"


def words(url: str, out: Path) -> list[str]:
    argv = [sys.executable, "-m", "fastfill", "bench", "ab", "--a", "off", "--b", "long-context", "--switch", "path"]
    argv += ["--grid", GRID, "--blocks", "3", "--noise", "0", "--url", url, "--out", str(out)]
    return [*argv, "--probe-tokens", "64", "--json"]


def wait_for(folder: Path, seen: Callable[[list[dict[str, Any]]], bool], seconds: float = 400.0) -> None:
    """Until the journal shows it."""
    deadline = time.monotonic() + seconds
    while not seen(journal.read(folder)):
        assert time.monotonic() < deadline, journal.read(folder)[-3:]
        time.sleep(0.05)


@pytest.mark.server("plain")
def test_a_benchmark_that_is_interrupted_once(lab_server: Start, tmp_path: Path) -> None:
    server = lab_server(LabSpec())
    first = subprocess.Popen(words(server.url, tmp_path), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wait_for(tmp_path, lambda events: any(e["event"] == "run" and e["block"] == 2 for e in events))
    first.send_signal(signal.SIGINT)
    talk = first.communicate(timeout=200)[1]
    assert first.returncode == 130, talk
    events = journal.read(tmp_path)
    finished = {event["unit"] for event in events if event["event"] == "unit"}
    assert finished and not any(name.startswith("ab003") for name in finished)
    kept = {e["file"]: e["sha256"] for e in events if e["event"] == "run" and e["unit"] in finished and e["file"]}
    assert len(kept) == 4

    second = subprocess.run(words(server.url, tmp_path), capture_output=True, text=True, check=False, timeout=600)
    assert second.returncode == 1, second.stderr
    document = json.loads(second.stdout)
    assert {one["arm"]: one["holds"] for one in document["proofs"]} == {"A": True, "B": True}, document["proofs"]
    assert all(digest(tmp_path / file) == sha for file, sha in kept.items())
    steps = [run["step"] for run in document["runs"] if run["cell"] == FITS]
    assert len(steps) == len(set(steps)) == 12 and document["complete"]
    assert any("Ctrl-C" in line for line in document["interruptions"])
    assert any("gone on with" in line for line in document["interruptions"])
    cells = {cell["name"]: cell for cell in document["cells"]}
    # The emulated kernel's speed says nothing; that there is a verdict, from blocks that nothing stands against, does.
    assert cells[FITS]["verdict"] in ("faster", "slower", "no difference shown") and len(cells[FITS]["blocks"]) == 3
    arms = cells[FITS]["arms"]
    assert (arms["A"]["coverage"]["attention_work"], arms["B"]["coverage"]["attention_work"]) == (0.0, 1.0)
    assert arms["A"]["coverage"]["stopped"] == {"operator_off": pytest.approx(1.0)}
    assert cells[TOO_LONG]["verdict"] == "void" and "do not fit the server's context" in cells[TOO_LONG]["why"]
    assert [(one["arm"], one["fast"]) for one in document["timings"]["prefills"]] == [("A", False), ("B", True)]
    assert document["timings"]["blocking"] is True and len(document["timings"]["decodes"]) == 2
    for name in ("report.html", "report.md", "report.json"):
        assert FITS in (tmp_path / name).read_text()


@pytest.mark.server("plain")
def test_a_client_that_is_cut_off_and_a_server_that_dies_are_in_the_report(lab_server: Start, tmp_path: Path) -> None:
    server = lab_server(LabSpec())
    delay = runs.folder(server.spec.port) / command.DELAY
    wish = setup.Wish("off", "long-context", "isl=64 osl=1 conc=1 prompts=4", 3, 0, "median_ttft_ms", url=server.url)

    def count(events: list[dict[str, Any]]) -> int:
        return sum(event["event"] == "run" for event in events)

    def troubles() -> None:
        # Arm B's first run meets a kernel that sleeps for longer than the client waits; in its third a scheduler dies.
        wait_for(tmp_path, lambda events: any(event["event"] == "warmup" and event["arm"] == "B" for event in events))
        delay.write_text("4000")
        wait_for(tmp_path, lambda events: count(events) >= 2)
        delay.unlink()
        wait_for(tmp_path, lambda events: count(events) >= 5)
        calls = server.call_log.stat().st_size
        delay.write_text("2000")
        while server.call_log.stat().st_size == calls:
            time.sleep(0.05)
        for one in process.members(server.run.session):
            if "scheduler" in " ".join(one.cmdline()):
                one.kill()

    thread = threading.Thread(target=troubles, daemon=True)
    thread.start()
    try:
        stopped = setup.execute(
            setup.settle(wish), tmp_path, python=None, access=setup.Access(), run_timeout_s=8.0, probe_tokens=64
        )
    finally:
        thread.join(60)
        delay.unlink(missing_ok=True)
    assert "died during" in stopped, stopped
    assert not thread.is_alive()
    document = report.write(tmp_path)
    assert not document.complete
    (cell,) = document.cells
    assert cell.verdict == "void"
    void = {run.step: run.void for run in document.runs if run.void}
    assert "cut off after 8 s" in void[f"{cell.name}-ab001-1B"], void
    assert any("the server died" in why for why in void.values()), void
    assert any("stopped" in line for line in document.interruptions)


@pytest.mark.server("off")
def test_a_flag_that_did_not_take_is_void(lab_server: Start, tmp_path: Path) -> None:
    server = lab_server(LabSpec(profile="off"))
    ran = subprocess.run(words(server.url, tmp_path), capture_output=True, text=True, check=False, timeout=600)
    assert ran.returncode == 4, ran.stderr
    document = json.loads(ran.stdout)
    assert {cell["verdict"] for cell in document["cells"]} == {"void"}
    assert "flag_off" in document["cells"][0]["why"], document["cells"][0]
    assert [(one["arm"], one["holds"]) for one in document["proofs"]][-1] == ("B", False)
