"""The evidence folder: what is in it and what is not, and that it comes to the same verdict, anywhere, if untouched."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from cli_run import Ran, fastfill
from contract_server import ContractServer
from evidence_maker import attempt, evidence, one_pass, rank
from junitparser import Error, Failure, JUnitXml

from fastfill.errors import FastfillError, UsageError
from fastfill.proof import folder, run
from fastfill.proof.loglines import LogEvidence
from fastfill.proof.redact import redacted
from fastfill.proof.traces import TraceEvidence, read
from fastfill.proof.verdict import decide
from fastfill.proof.wire import RankPasses

ROCM = Path(__file__).parent / "traces" / "rocm-1700000000.5-TP-1.trace.json"


def prove(*words: str, env: dict[str, str] | None = None) -> tuple[Ran, dict[str, Any]]:
    ran = fastfill("prove", "--json", *words, env=env)
    return ran, json.loads(ran.out)


def recorded(server: ContractServer, place: Path, *more: str) -> dict[str, Any]:
    _, document = prove("--url", server.url, "--evidence", str(place), *more)
    return document


SPOILED: dict[str, dict[str, Any]] = {
    "FIRED": {},
    "NOT_FIRED": {"reason": "flag_off"},
    "PARTIAL": {"calls_per_pass": {0: 1}},
    "INVALID": {"control_ignored": True},
    "WRONG": {"shift": 2.0},
    "NOT_EXERCISED": {"own_prefix": [64] * 9},
}


@pytest.mark.parametrize("verdict", SPOILED)
def test_the_same_verdict_without_the_server(server: ContractServer, tmp_path: Path, verdict: str) -> None:
    for name, value in SPOILED[verdict].items():
        setattr(server, name, value)
    document = recorded(server, tmp_path / "e")
    assert document["verdict"] == verdict
    moved = shutil.move(tmp_path / "e", tmp_path / "elsewhere")
    server.http.clear()
    ran, again = prove("--replay", str(moved))
    assert (ran.code, again["verdict"]) == (document["exit_code"], verdict)
    assert (
        again["evidence"]["replayed"]
        and again["evidence"]["manifest_sha256"] == (document["evidence"]["manifest_sha256"])
    )
    for part in ("summary", "reason", "ranks", "witnesses", "control", "answers", "coverage", "attempts", "server"):
        assert again[part] == document[part], part


def test_no_secret_is_in_it(server: ContractServer, tmp_path: Path) -> None:
    server.key = "sesame-open-1"
    key = tmp_path / "key"
    key.write_text(server.key)
    server.server_info = {
        "admin_api_key": "root-of-all",
        "nested": {"hf_token": "hf_x", "ssl_keyfile_password": "p4ss"},
        "launch": "x --api-key sesame-open-1",
    }
    document = recorded(server, tmp_path / "e", "--api-key-file", str(key))
    assert document["verdict"] == "FIRED"
    everything = b"".join(file.read_bytes() for file in (tmp_path / "e").rglob("*") if file.is_file())
    for secret in (b"sesame-open-1", b"root-of-all", b"hf_x", b"p4ss", b"never-print-me"):
        assert secret not in everything
    assert b"(redacted)" in everything and (tmp_path / "e").stat().st_mode & 0o077 == 0


def test_what_is_no_secret_stays() -> None:
    plain = {"max_total_num_tokens": 5, "tokenizer_path": "m", "skip_tokenizer_init": False, "api_key": None}
    assert redacted(plain) == plain
    command = {"launch_command": "sglang serve --admin-api-key 'a b' --port 1"}
    assert redacted(command) == {"launch_command": "sglang serve --admin-api-key (redacted) --port 1"}
    assert redacted({"api_key": "x", "list": [{"password": "y"}]}) == {
        "api_key": "(redacted)",
        "list": [{"password": "(redacted)"}],
    }


def files(place: Path) -> list[str]:
    return sorted(file.relative_to(place).as_posix() for file in place.rglob("*") if file.is_file())


def test_what_is_in_it(server: ContractServer, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(b"x\n")
    recorded(server, tmp_path / "e", "--log", str(log))
    assert files(tmp_path / "e") == [
        "counters-after.txt",
        "counters-before.txt",
        "evidence.json",
        "log.json",
        "manifest.json",
        "requests.jsonl",
        "server_info.json",
        "stack.json",
        "verdict.json",
    ]
    sent = [json.loads(line) for line in (tmp_path / "e" / "requests.jsonl").read_text().splitlines()]
    assert sent == server.requests
    assert "# TYPE fastfill:prefill_attention_calls_total" in (tmp_path / "e" / "counters-after.txt").read_text()
    stack = json.loads((tmp_path / "e" / "stack.json").read_text())
    assert len(stack["stacks"]["sglang-0.5.16"]) == 64


@pytest.mark.parametrize("name", ["evidence.json", "counters-after.txt", "verdict.json", "requests.jsonl"])
def test_a_changed_file_is_refused(server: ContractServer, tmp_path: Path, name: str) -> None:
    recorded(server, tmp_path / "e")
    file = tmp_path / "e" / name
    file.write_bytes(file.read_bytes().replace(b"1", b"2", 1))
    ran, document = prove("--replay", str(tmp_path / "e"))
    assert (ran.code, document["verdict"]) == (1, None)
    assert f"{name}: changed" in ran.err


def test_a_folder_that_was_sealed_again_is_another_one(server: ContractServer, tmp_path: Path) -> None:
    """The verdict is the same and a detail is not: only the hash that was noted down tells."""
    place = tmp_path / "e"
    noted = recorded(server, place)["evidence"]["manifest_sha256"]
    assert f"manifest {noted}" in fastfill("prove", "--replay", str(place)).out
    assert prove("--replay", str(place), "--manifest-sha256", noted.upper())[0].code == 0
    file = place / "requests.jsonl"
    file.write_text(file.read_text() + "{}\n")
    folder.seal(place)
    assert prove("--replay", str(place))[1]["verdict"] == "FIRED"
    ran, document = prove("--replay", str(place), "--manifest-sha256", noted)
    assert (ran.code, document["verdict"]) == (1, None)
    assert "not the evidence whose hash was noted down" in ran.err
    ran, _ = prove("--replay", str(place), "--manifest-sha256", noted[:16])
    assert ran.code == 2 and "64 hexadecimal digits" in ran.err


@pytest.mark.parametrize(
    "words",
    [
        ("--url", "http://h:1"),
        ("--evidence", "x"),
        ("--deadline", "5"),
        ("--light",),
        ("--load", "0"),
        ("--witness", "counters"),
        ("--min-coverage", "0.5"),
        ("--api-key-file", "x"),
        ("--container", "x"),
    ],
)
def test_a_replay_hears_nothing_of_a_server(server: ContractServer, tmp_path: Path, words: tuple[str, ...]) -> None:
    recorded(server, tmp_path / "e")
    ran, document = prove("--replay", str(tmp_path / "e"), *words)
    assert (ran.code, document["verdict"]) == (2, None)
    assert f"{words[0]} has no effect here" in ran.err
    # A variable of the environment stands for every call, and is no wish.
    assert prove("--replay", str(tmp_path / "e"), env={"FASTFILL_URL": "http://h:1"})[0].code == 0


def test_a_missing_and_an_added_file_are_refused(server: ContractServer, tmp_path: Path) -> None:
    recorded(server, tmp_path / "e")
    (tmp_path / "e" / "stack.json").rename(tmp_path / "e" / "other.json")
    ran, _ = prove("--replay", str(tmp_path / "e"))
    assert ran.code == 1 and "stack.json: missing" in ran.err and "other.json: added" in ran.err
    (tmp_path / "e" / "other.json").unlink()
    (tmp_path / "e" / "stack.json").symlink_to("/etc/hostname")
    ran, _ = prove("--replay", str(tmp_path / "e"))
    assert ran.code == 1 and "stack.json: changed" in ran.err


@pytest.mark.parametrize("content", [None, "", "{}", '{"schema": "fastfill.evidence/9", "fastfill": "1", "files": {}}'])
def test_what_is_no_evidence_folder_is_a_usage_error(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "manifest.json").write_text(content)
    ran, document = prove("--replay", str(tmp_path))
    assert (ran.code, document["verdict"]) == (2, None)
    assert prove("--replay", str(tmp_path / "nowhere"))[0].code == 2


def test_a_folder_that_is_taken_is_refused_before_anything_is_sent(server: ContractServer, tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    ran, _ = prove("--url", server.url, "--evidence", str(tmp_path))
    assert ran.code == 2 and "holds something already" in ran.err
    assert server.requests == []


def test_neither_a_server_nor_a_folder_is_a_usage_error() -> None:
    ran, _ = prove(env={"FASTFILL_URL": ""})
    assert ran.code == 2 and "--replay DIR" in ran.err


def write(place: Path, **parts: Any) -> Path:
    """A folder made by hand."""
    made = evidence(**parts)
    folder.prepare(place)
    judged = {"verdict": decide(made).name, "elapsed_s": 1.0}
    folder.write(place, made, judged, requests=[], server_info={}, stack={})
    return place


def test_a_hand_made_rocm_trace_replays(tmp_path: Path) -> None:
    with ROCM.open("rb") as file:
        found = read(ROCM.name, file)
    mine = one_pass("t1", number=7)
    between = tuple(RankPasses(rank=rank(tp), pid=100 + tp, passes=(mine,)) for tp in (0, 1))
    twin = found.model_copy(update={"rank": rank(0), "file": "x-TP-0.trace.json.gz"})
    trace = TraceEvidence(attempts=(attempt("t1", (mine,), (mine,)),), whole=True, between=between, ranks=(twin, found))
    place = write(tmp_path / "e", tp=2, trace=trace, log=LogEvidence(source="file x", problem="none"))
    # The vendor's own file in place of what was kept of it.
    shutil.copy(ROCM, place / "traces" / ROCM.name)
    folder.seal(place)
    document = run.replay(place)
    assert document.verdict == "FIRED"
    assert {one.witness: one.says for one in document.witnesses} == {
        "counters": "seen",
        "log": "cannot_say",
        "trace": "seen",
    }
    # A trace in which the kernel ran once contradicts.
    text = (place / "traces" / ROCM.name).read_text()
    ours = '"cat": "kernel", "name": "_ZN5aiter38fmha_fwd'
    (place / "traces" / ROCM.name).write_text(
        text.replace(ours, '"cat": "gpu_memset", "name": "_ZN5aiter38fmha_fwd', 1)
    )
    folder.seal(place)
    with pytest.raises(FastfillError, match="DISAGREE"):
        run.replay(place)


def test_only_the_sealed_folder_is_judged(tmp_path: Path) -> None:
    """A folder that was sealed again, with a trace, or a whole file, from elsewhere."""
    with ROCM.open("rb") as file:
        found = read(ROCM.name, file)
    mine = one_pass("t1", number=7)
    between = (RankPasses(rank=rank(1), pid=101, passes=(mine,)),)
    trace = TraceEvidence(attempts=(attempt("t1", (mine,), (mine,)),), whole=True, between=between, ranks=(found,))
    place = write(tmp_path / "e", tp=2, trace=trace)
    evidence_file = place / "evidence.json"
    text = evidence_file.read_text()
    evidence_file.write_text(text.replace(f'"{ROCM.name}"', json.dumps(str(ROCM))))
    folder.seal(place)
    with pytest.raises(UsageError, match="no name of a trace"):
        run.replay(place)
    elsewhere = tmp_path / "elsewhere.json"
    elsewhere.write_text(text)
    evidence_file.unlink()
    evidence_file.symlink_to(elsewhere)
    folder.seal(place)
    with pytest.raises(FastfillError, match="not what was recorded"):
        run.replay(place)
    manifest = json.loads((place / "manifest.json").read_text())
    manifest["files"]["evidence.json"] = {"sha256": "", "size": -1}
    (place / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UsageError, match="no evidence folder"):
        run.replay(place)


def test_junit_has_a_case_a_check(server: ContractServer, tmp_path: Path) -> None:
    file = tmp_path / "j.xml"
    ran, _ = prove("--url", server.url, "--junit", str(file))
    (suite,) = JUnitXml.fromfile(str(file))
    assert ran.code == 0 and (suite.tests, suite.failures, suite.errors, suite.skipped) == (6, 0, 0, 0)
    assert [case.name for case in suite] == [
        "verdict", "rank pp0 dp0 tp0", "witness counters", "witness log", "control", "answers",
    ]  # fmt: skip
    # What nobody asked for by name may be missing; it is said, and is no pass of its own.
    assert {one.name: one.value for one in suite.properties()}["not shown"] == "witness log"
    assert [case.name for case in suite if str(case.system_out).startswith("not shown: cannot_say")] == ["witness log"]
    prove("--url", server.url, "--junit", str(file), "--witness", "counters,log")
    (suite,) = JUnitXml.fromfile(str(file))
    assert (suite.failures, suite.errors, suite.skipped) == (0, 1, 0)
    assert [case.name for case in suite if any(isinstance(one, Error) for one in case.result)] == ["witness log"]
    server.reason = "flag_off"
    prove("--url", server.url, "--junit", str(file))
    (suite,) = JUnitXml.fromfile(str(file))
    failed = [case.name for case in suite if any(isinstance(one, Failure) for one in case.result)]
    assert "verdict" in failed and "rank pp0 dp0 tp0" in failed


def test_junit_is_xml_whatever_a_server_says(server: ContractServer, tmp_path: Path) -> None:
    server.generate_status, server.refusal = 500, "\x1b[31mno\x00"
    file = tmp_path / "j.xml"
    ran, _ = prove("--url", server.url, "--junit", str(file))
    (suite,) = JUnitXml.fromfile(str(file))
    assert ran.code == 3 and suite.errors >= 1 and "[31mno" in file.read_text()


def test_a_proof_that_was_not_made_is_an_error_in_junit_and_never_skipped(
    server: ContractServer, tmp_path: Path
) -> None:
    file = tmp_path / "j.xml"
    server.own_prefix = [64] * 9
    ran, _ = prove("--url", server.url, "--junit", str(file))
    (suite,) = JUnitXml.fromfile(str(file))
    assert ran.code == 3 and suite.errors >= 1 and suite.skipped == 0
    ran, _ = prove("--url", "http://127.0.0.1:1", "--junit", str(file))
    (suite,) = JUnitXml.fromfile(str(file))
    assert ran.code == 4 and suite.errors >= 1 and suite.failures == suite.skipped == 0
    ran, _ = prove("--url", server.url, "--junit", str(tmp_path / "no" / "j.xml"))
    assert ran.code == 2 and "JUnit" in ran.err
