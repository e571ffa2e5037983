"""Committed result files: made from the sources as they are now, and inside the bounds that the README states."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "results").glob("*.json"))
sys.path.insert(0, str(ROOT / "bench"))
from stamp import source_sha256

from fastfill.lab import stacks

QUANTIZE = json.loads((ROOT / "results" / "quantize-nvidia-h200.json").read_text())


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_stamp_is_that_of_the_sources(file: Path) -> None:
    document = json.loads(file.read_text())
    assert document["source_sha256"] == source_sha256(document["sources"]), f"stale: run {document['command']} again"


def rows(**wanted: Any) -> list[dict[str, Any]]:
    found = [row for row in QUANTIZE["rows"] if all(row[key] == value for key, value in wanted.items())]
    assert found, wanted
    return found


@pytest.mark.parametrize("heads", [4, 8, 32])
def test_strided_input_is_four_times_as_fast_as_upstream(heads: int) -> None:
    for row in rows(tokens=60000, strided=True, q_heads=heads):
        assert row["gpu_ratio"] >= 4.0


@pytest.mark.parametrize("heads", [4, 8, 16, 32])
def test_contiguous_input_is_a_quarter_faster(heads: int) -> None:
    for row in rows(tokens=60000, strided=False, q_heads=heads):
        assert row["gpu_ratio"] >= 1.25


def test_it_reaches_the_copy_bandwidth() -> None:
    assert all(row["of_copy"] >= 0.9 for row in rows(tokens=60000))


def test_it_is_never_slower_on_the_gpu() -> None:
    assert {row["tokens"] for row in QUANTIZE["rows"]} >= {1, 64, 1024, 60000}
    assert all(row["gpu_ratio"] >= 0.95 for row in QUANTIZE["rows"])


def test_correctness_was_checked_in_the_same_run() -> None:
    assert QUANTIZE["cases_checked"] >= 400
    assert QUANTIZE["kv_write_cases_checked"] >= 20


@pytest.mark.parametrize(("name", "release"), [("gate-overhead", "0.5.16"), ("gate-overhead-0.5.23", "0.5.23")])
def test_gate_and_witness_cost_less_than_their_bounds(name: str, release: str) -> None:
    document = json.loads((ROOT / "results" / f"{name}.json").read_text())
    assert document["sglang"] == release
    cases = {(row["case"], row["batch"]) for row in document["rows"]}
    assert cases >= {(case, batch) for case in ("flag off", "flag on") for batch in (1, 64, 256)} | {("witness", 1)}
    assert all(row["added_us"] < row["bound_us"] for row in document["rows"])


SWEEP = ROOT / "results" / "sweep.json"


def test_every_release_did_what_explain_says() -> None:
    """Each stack of the lab, each kind of model; FIRED is said where the path fired, and nowhere else."""
    document = json.loads(SWEEP.read_text())
    swept = {(row["stack"], row["model"], row["kv"]) for row in document["rows"]}
    models = {("dense", "auto"), *((f"dense{kind}", "fp8_e4m3") for kind in ("", "-gqa6", "-hd128", "-scales"))}
    assert swept >= {(stack, *model) for stack in stacks.names() for model in models}
    assert swept >= {(stack, "hybrid", "fp8_e4m3") for stack in ("sglang-0.5.16", "sglang-0.5.23")}
    for row in document["rows"]:
        seen = row["observed"]
        assert row["predicted"] == seen["verdict"], row
        if seen["verdict"] == "crashes":
            assert "invalid argument for fmha_fwd" in seen["error"], row
            continue
        fired = seen["verdict"] in ("fires", "conditional", "wrong")
        assert (row["proof"]["verdict"] in ("FIRED", "WRONG")) == fired, row
        assert row["proof"]["verdict"] in ("FIRED", "WRONG", "NOT_FIRED"), row
        if fired:
            assert (max(seen["delta"].values()) > 0.2) == (seen["verdict"] == "wrong"), row
    assert {row["predicted"] for row in document["rows"]} == {"fires", "conditional", "never", "crashes", "wrong"}


@pytest.mark.parametrize(("release", "traces"), [("0.5.16", 40), ("0.5.23", 12)])
def test_the_planner_makes_the_batches_of_the_real_scheduler(release: str, traces: int) -> None:
    """Split prompts, cached prefixes, a KV pool that runs out, linear-attention layers: every batch the same."""
    result = document(f"plan-fidelity-{release}")
    assert result["sglang"] == release
    assert result["traces"] == sum(row["traces"] for row in result["rows"]) >= traces
    assert all(row["overlap"] and row["mismatches"] == 0 for row in result["rows"])
    for what, least in (("split", 40), ("radix_hits", 40)):
        assert sum(row[what] for row in result["rows"]) >= least
    if release != "0.5.16":
        return
    assert sum(row["retractions"] for row in result["rows"]) >= 5
    linear = [row for row in result["rows"] if row["variant"].startswith("linear-attention")]
    assert sum(row["radix_hits"] for row in linear) >= 5


CLOCKS = ("0.5.16", "0.5.23")


@pytest.mark.parametrize("release", CLOCKS)
def test_the_planners_clock_is_as_near_to_real_runs_as_they_are_to_each_other(release: str) -> None:
    result = document(f"plan-clock-{release}")
    assert result["sglang"] == release and result["runs"] >= 3
    assert result["planner_to_real"] <= result["real_to_real"] + 0.05
    for setting in result["coverage_real"]:
        found = [row for row in result["rows"] if row["setting"] == setting]
        assert len({row["trace"] for row in found}) >= 20
        assert all(len(row["coverage_real"]) == result["runs"] for row in found)


def test_the_clock_is_held_against_forty_traces() -> None:
    assert len({row["trace"] for release in CLOCKS for row in document(f"plan-clock-{release}")["rows"]}) >= 40


@pytest.mark.parametrize("release", CLOCKS)
def test_the_recommended_flags_beat_upstreams_advice_on_the_real_server_or_tie(release: str) -> None:
    """Coverage by the server's own counters, on the same traces."""
    result = document(f"plan-clock-{release}")
    means = result["coverage_real"]
    mine = means[result["recommended"]["setting"]]
    assert set(result["recommended_against"]) == {"65536, scaled", "-1 with 65536, scaled"}
    for label, verdict in result["recommended_against"].items():
        assert verdict == ("ties" if abs(mine - means[label]) < 0.01 else "beats"), label
        assert mine > means[label] - 0.01


def document(name: str) -> dict[str, Any]:
    return json.loads((ROOT / "results" / f"{name}.json").read_text())  # type: ignore[no-any-return]


def test_no_saboteur_is_missed() -> None:
    result = document("saboteurs")
    table = json.loads((ROOT / "tests" / "data" / "saboteurs.json").read_text())
    ran = {row["id"] for row in result["rows"]}
    assert result["missed"] == [] and all(row["deserved"] for row in result["rows"])
    assert {row["id"] for row in table if row["kind"] in ("words", "start", "proxy", "restart")} == ran


def test_every_fault_of_the_answers_is_caught_by_a_named_check_and_the_readme_says_which() -> None:
    caught = document("saboteurs")["caught_by"]
    readme = (ROOT / "README.md").read_text()
    assert len(caught) >= 10
    for id, checks in caught.items():
        (line,) = (line for line in readme.splitlines() if line.startswith(f"| `{id}` |"))
        marks = [cell.strip() for cell in line.split("|")[3:6]]
        assert checks and marks == ["x" if name in checks else "" for name in CHECKS], id


CHECKS = ("logprobs (dense)", "logprobs (needle)", "needles (needle)")


def test_a_good_server_never_was_accused() -> None:
    result = document("prove-false-alarms")
    assert result["runs"] >= 50 and result["alarms"] == 0
    assert {row["verdict"] for row in result["rows"]} == {"FIRED"}
    assert sum(row["traffic"] for row in result["rows"]) >= 20 and result["requests_of_others"] >= 100


def test_the_planner_is_quick_and_small() -> None:
    rows = json.loads((ROOT / "results" / "plan-speed.json").read_text())["rows"]
    seconds = {(row["case"], row["requests"]): row["seconds"] for row in rows}
    assert sum(requests == 100_000 for _, requests in seconds) == 3
    assert sum(requests == 1_000_000 for _, requests in seconds) == 3
    for row in rows:
        assert row["peak_mb"] < 1000
        assert row["requests"] > 100_000 or row["seconds"] < 60
        if row["requests"] == 1_000_000:
            assert row["seconds"] < 14 * seconds[row["case"], 100_000]


def test_two_hundred_hosts_are_looked_at_in_little_memory() -> None:
    rows = {(row["playbook"], row["hosts"]): row for row in document("fleet-200")["rows"]}
    wanted = {("site.yml", 1), ("site.yml", 3), ("status.yml", 1), ("status.yml", 3), ("status.yml", 200)}
    assert rows.keys() >= wanted
    for row in rows.values():
        assert row["controller_peak_mb"] < 2000 and row["forks"] >= 20, row


def test_the_paired_benchmark_finds_what_is_there_and_nothing_else() -> None:
    result = document("paired")
    same, slower, truth = result["a_a"], result["delayed"], result["truth_ms"]
    assert same["blocks"] >= 40 and slower["blocks"] >= 40
    assert same["false_verdicts"] <= same["binomial_bound"]
    assert truth == 2 * result["arguments"]["delay_ms"]
    assert slower["found"] == slower["blocks"]
    assert slower["covered"] >= 33 * slower["blocks"] / 40
    assert (result["verdict"], result["void_blocks"]) == ("slower", [])
    assert abs(result["difference"]["value"] - truth) < 0.1 * truth
    assert result["flag_not_taken"]["verdict"] == "void" and "flag_off" in result["flag_not_taken"]["why"]
