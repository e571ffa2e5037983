"""Logs of real lab servers' steps, replayed: every batch, as the real scheduler made it.

`bench/plan_fidelity.py --keep FOLDER` writes such logs; `make prove-all` compares fresh ones.
"""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from fastfill.errors import UsageError
from fastfill.planning import steplog

LOGS = sorted((Path(__file__).resolve().parents[1] / "data" / "plan").glob("*.jsonl.gz"))


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.name.removesuffix(".jsonl.gz"))
def test_every_batch(log: Path) -> None:
    found = steplog.replay(*steplog.read(log))
    assert found.mismatches == []
    assert found.prefills > 10


def test_the_logs_hold_what_is_hard() -> None:
    found = [steplog.replay(*steplog.read(log)) for log in LOGS]
    assert sum(one.split for one in found) > 50
    assert sum(one.hits for one in found) > 50


@pytest.mark.parametrize("change", ["extend", "kind", "missing", "ended"])
def test_another_batch_is_a_mismatch(change: str) -> None:
    rules, settings, lines = steplog.read(LOGS[0])
    lines = copy.deepcopy(lines)
    at = next(n for n, line in enumerate(lines) if n > 20 and line["batch"] and line["batch"]["kind"] == "extend")
    if change == "extend":
        lines[at]["batch"]["members"][0][2] -= 1
    elif change == "kind":
        lines[at]["batch"]["kind"] = "mixed"
    elif change == "missing":
        lines[at]["batch"] = None
    else:
        ended = next(line for line in lines if line["ended"])
        ended["ended"] = []
    assert steplog.replay(rules, settings, lines).mismatches


def test_what_is_no_such_log(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text("{}\n")
    with pytest.raises(UsageError, match="no log"):
        steplog.read(file)
