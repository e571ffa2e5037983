"""aiter's LoadKernel line in logs of every kind: whole, rotated, hidden, torn, of another server, of no encoding."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest
from evidence_maker import evidence, rank_status, status

from fastfill.errors import UsageError
from fastfill.proof import logsource
from fastfill.proof.loglines import LogEvidence, scan
from fastfill.proof.logsource import Source
from fastfill.proof.verdict import Verdict, decide
from fastfill.proof.wire import ServerFacts

LINE = (
    b"[aiter] LoadKernel: _ZN5aiter38fmha_fwd_hd256_fp8_causal_group_gfx950E hsaco: "
    b"/x/hsa//gfx950/fmha_v3_fwd/fwd_hd256_fp8_causal_group.co\n"
)
OTHER = b"[aiter] LoadKernel: _ZN5aiter31fmha_fwd_hd256_fp8_group_gfx950E hsaco: /x/fwd_hd256_fp8_group.co\n"
START = b"[2026-01-02 03:04:05] server_args=ServerArgs(model_path='m', random_seed=77, port=30000)\n"


def found(*lines: bytes) -> LogEvidence:
    return scan("file server.log", lines)


def judged(log: LogEvidence, *, seed: int | None = 77, tp: int = 1, **state: Any) -> Verdict:
    server = ServerFacts(version="0.5.16", tp_size=tp, random_seed=seed)
    states = status(*(rank_status(index, aiter_log_level="", **state) for index in range(tp)))
    return decide(evidence(tp=tp, log=log, server=server, status_before=states, status_after=states))


def word(verdict: Verdict) -> tuple[str, str]:
    (one,) = [one for one in verdict.witnesses if one.witness == "log"]
    return one.says, one.detail


def test_a_line_a_process_is_seen() -> None:
    verdict = judged(found(START, LINE, OTHER, LINE), tp=2)
    assert verdict.name == "FIRED" and word(verdict)[0] == "seen"


def test_two_lines_written_into_one_are_two() -> None:
    assert word(judged(found(START, LINE.rstrip() + LINE), tp=2))[0] == "seen"


def test_only_what_follows_the_last_start_counts() -> None:
    log = found(START.replace(b"77", b"76"), LINE, LINE, START)
    assert log.lines == () and log.reaches_start
    assert judged(log).name == "DISAGREE"


def test_a_start_of_newer_releases_is_one_too() -> None:
    """From 0.5.19 on SGLang prints its arguments as a dictionary."""
    start = b"[2026-01-02 03:04:05] server_args={'model_path': 'm', 'random_seed': 77, 'port': 30000}\n"
    log = found(start.replace(b"77", b"76"), LINE, start)
    assert (log.lines, log.reaches_start, log.seed) == ((), True, 77)
    assert judged(log).name == "DISAGREE"
    assert word(judged(found(start, LINE), seed=78))[0] == "cannot_say", "the log of another start"


def test_arguments_that_are_printed_twice_are_one_start() -> None:
    assert len(found(START, LINE, START).lines) == 1
    other = START.replace(b"77", b"78")
    assert (found(other, LINE, START).lines, found(other, LINE, START).seed) == ((), 77)


@pytest.mark.parametrize("lines", [(START,), (START, OTHER), (START, b"Prefill batch\n")])
def test_a_whole_log_without_the_line_contradicts(lines: tuple[bytes, ...]) -> None:
    verdict = judged(found(*lines))
    assert (verdict.name, verdict.reason and verdict.reason.id) == ("DISAGREE", "witnesses_disagree")
    assert word(verdict)[0] == "contradicts"
    assert "counters: 2 of 2" in verdict.summary and "log contradicts" in verdict.summary


def test_one_line_for_two_processes_that_call_it_contradicts() -> None:
    assert judged(found(START, LINE), tp=2).name == "DISAGREE"


@pytest.mark.parametrize(
    ("lines", "state", "why"),
    [
        ((b"Prefill batch\n",), {}, "does not reach back"),
        ((LINE, LINE), {}, "does not say which start"),
        ((START,), {"aiter_log_level": "warning"}, "AITER_LOG_LEVEL=warning hides it"),
        ((START, LINE[:40], LINE[41:]), {}, "torn"),
        ((START, b"[aiter] Load\xffKernel"), {}, "not UTF-8"),
        ((START, b"x"), {"aiter_log_level": None}, "log level"),
    ],
)
def test_a_log_that_may_have_lost_it_cannot_say(lines: tuple[bytes, ...], state: dict[str, Any], why: str) -> None:
    states = status(rank_status(**{"aiter_log_level": "", **state}))
    server = ServerFacts(version="0.5.16", tp_size=1, random_seed=77)
    verdict = decide(evidence(log=found(*lines), server=server, status_before=states, status_after=states))
    assert verdict.name == "FIRED"
    assert word(verdict)[0] == "cannot_say" and why in word(verdict)[1]


def test_another_servers_log_cannot_say() -> None:
    says, detail = word(judged(found(START, LINE), seed=78))
    assert says == "cannot_say" and "another" in detail


def test_a_loaded_kernel_that_the_counters_never_saw_contradicts() -> None:
    """Counters that never rise: whoever loaded it called it."""
    from test_verdict import probe

    states = status(rank_status(flag=False, aiter_log_level=""))
    server = ServerFacts(version="0.5.16", tp_size=1, random_seed=77)
    more = {"server": server, "status_before": states, "status_after": states, "controls": ()}
    verdict = decide(evidence(log=found(START, LINE), **probe(0, reasons={"flag_off": 2}), **more))
    assert verdict.name == "DISAGREE" and "counters: 0 of 2" in verdict.summary
    assert decide(evidence(log=found(LINE), **probe(0, reasons={"flag_off": 2}), **more)).name == "NOT_FIRED"
    unpatched = status(rank_status(patched=False, sglang="0.5.23"))
    more |= {"status_before": unpatched, "status_after": unpatched}
    assert decide(evidence(log=found(START, LINE), **probe(0), **more)).name == "NOT_FIRED"


def test_bytes_of_no_encoding_are_read(tmp_path: Path) -> None:
    file = tmp_path / "server.log"
    file.write_bytes(b"\xff\xfe\x00\n" + START + b"caf\xe9 \x80\n" + LINE)
    log = logsource.read(Source(file=file), 0.0)
    assert (len(log.lines), log.undecodable, log.seed, log.reaches_start) == (1, 1, 77, True)
    assert word(judged(log))[0] == "seen"


def test_the_line_that_supervise_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "kernels.jsonl"
    text = LINE.decode().strip()
    kept = [{"time": 100.0, "server_pid": 1, "line": text}, {"time": 205.0, "server_pid": 1, "line": text}]
    file.write_text("".join(json.dumps(one) + "\n" for one in kept) + '{"time": 2')
    monkeypatch.setenv("FASTFILL_STATE_DIR", str(tmp_path))
    for source in (Source(file=file), Source()):
        log = logsource.read(source, since=200.0)
        assert len(log.lines) == 1
        assert word(judged(log))[0] == "seen"
    # A clock that jumped takes the line away; that is no contradiction.
    assert word(judged(logsource.read(Source(file=file), since=900.0)))[0] == "cannot_say"
    assert word(judged(logsource.read(Source(file=file), since=0.0)))[0] == "cannot_say"


def test_no_log_at_all_cannot_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FASTFILL_STATE_DIR", raising=False)
    says, detail = word(judged(logsource.read(Source(), 0.0)))
    assert says == "cannot_say" and "--log FILE" in detail


def fake(folder: Path, name: str, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool of this name, first on PATH."""
    tool = folder / name
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_a_containers_log_and_the_state_folder_behind_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "log").write_bytes(START + LINE)
    script = f'case "$1" in container) echo id;; logs) cat {tmp_path}/log >&2;; exec) cat {tmp_path}/kept;; esac'
    fake(tmp_path, "docker", script, monkeypatch)
    log = logsource.read(Source(container="server"), 50.0)
    assert (log.source, len(log.lines), log.seed) == ("container server", 1, 77)
    # Rotated away, it is in the state folder.
    (tmp_path / "log").write_bytes(b"Prefill batch\n")
    (tmp_path / "kept").write_text(json.dumps({"time": 60.0, "line": LINE.decode()}) + "\n")
    log = logsource.read(Source(container="server"), 50.0)
    assert (log.source, len(log.lines)) == ("container server, kernels.jsonl", 1)
    log = logsource.read(Source(container="server"), 70.0)
    assert (log.source, len(log.lines), log.reaches_start) == ("container server", 0, False)


def test_a_container_that_does_not_answer_in_time_holds_nothing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(tmp_path, "docker", 'case "$1" in container) echo id;; logs) echo x;; exec) exec sleep 30;; esac', monkeypatch)
    monkeypatch.setattr(logsource, "_QUICK_S", 0.5)
    log = logsource.read(Source(container="server"), 50.0)
    assert (log.source, log.lines) == ("container server", ())


def test_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "log").write_bytes(START + LINE)
    fake(tmp_path, "journalctl", f"cat {tmp_path}/log", monkeypatch)
    log = logsource.read(Source(journal="sglang.service"), 0.0)
    assert (log.source, len(log.lines)) == ("journal of sglang.service", 1)
    (tmp_path / "log").write_bytes(b"")
    assert logsource.read(Source(journal="sglang.service"), 0.0).problem


REMOTE = "/lib/systemd/systemd-journal-remote"


@pytest.mark.skipif(
    not (shutil.which("journalctl") and Path(REMOTE).exists()), reason="needs systemd's journal and journal-remote"
)
def test_the_journals_own_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal as journald writes it, read by journalctl: two units, and bytes that are no UTF-8."""
    said = [("sglang", START), ("other", LINE), ("sglang", LINE), ("sglang", b"caf\xe9 \x1b[31mred\n")]
    entries = b"".join(
        f"__REALTIME_TIMESTAMP={1_700_000_000_000_000 + number}\n__MONOTONIC_TIMESTAMP={number + 1}\n"
        f"_BOOT_ID={'ab' * 16}\n_MACHINE_ID={'cd' * 16}\n_SYSTEMD_UNIT={unit}.service\nMESSAGE\n".encode()
        + struct.pack("<Q", len(line) - 1)
        + line
        + b"\n"
        for number, (unit, line) in enumerate(said)
    )
    (tmp_path / "j").mkdir()
    argv = [REMOTE, "-o", str(tmp_path / "j" / "x.journal"), "-"]
    subprocess.run(argv, input=entries, check=True, capture_output=True, timeout=60)
    fake(tmp_path, "journalctl", f'exec {shutil.which("journalctl")} -D {tmp_path}/j "$@"', monkeypatch)
    log = logsource.read(Source(journal="sglang.service"), 0.0)
    assert (len(log.lines), log.seed, log.reaches_start, log.undecodable) == (1, 77, True, 1)
    assert word(judged(log))[0] == "seen"
    assert logsource.read(Source(journal="nobody.service"), 0.0).problem


def test_a_log_that_is_not_there_is_a_usage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(tmp_path, "docker", "echo 'Error: No such container: x' >&2; exit 1", monkeypatch)
    with pytest.raises(UsageError, match="No such container: x"):
        logsource.read(Source(container="x"), 0.0)
    with pytest.raises(UsageError, match="cannot read the log"):
        logsource.read(Source(file=tmp_path / "nowhere"), 0.0)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(UsageError, match="docker is not installed"):
        logsource.read(Source(container="x"), 0.0)
