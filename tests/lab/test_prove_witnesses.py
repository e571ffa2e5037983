"""The three witnesses of `fastfill prove` on real lab servers: counters, log and trace, on one rank and on two."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_prove_live import prove

from fastfill.lab.server import LabServer
from fastfill.lab.spec import LabSpec

Start = Callable[[LabSpec], LabServer]
ALL = "counters,log,trace"


def says(document: dict[str, Any]) -> dict[str, str]:
    return {one["witness"]: one["says"] for one in document["witnesses"]}


def details(document: dict[str, Any]) -> dict[str, str]:
    return {one["witness"]: one["detail"] for one in document["witnesses"]}


@pytest.mark.server("plain")
def test_all_three_see_it_on_one_rank(lab_server: Start) -> None:
    server = lab_server(LabSpec())
    before = set(Path("/tmp").glob("fastfill-prove-*"))
    code, document = prove(server, "--witness", ALL, "--log", str(server.log_path))
    assert (code, document["verdict"]) == (0, "FIRED"), document
    assert says(document) == {"counters": "seen", "log": "seen", "trace": "seen"}, document["witnesses"]
    assert "2 run(s) of the kernel in the trace (emulated), 2 call(s) in the ring" in details(document)["trace"]
    assert set(Path("/tmp").glob("fastfill-prove-*")) <= before, "the traces are removed"


@pytest.mark.server("tp2")
def test_all_three_see_it_on_both_ranks(lab_server: Start) -> None:
    server = lab_server(LabSpec(tp=2))
    code, document = prove(server, "--witness", ALL, "--log", str(server.log_path))
    assert (code, document["verdict"]) == (0, "FIRED"), document
    assert says(document) == {"counters": "seen", "log": "seen", "trace": "seen"}, document["witnesses"]
    assert details(document)["trace"].count("2 call(s) in the ring") == 2
    assert "2 line(s) for 2 process(es)" in details(document)["log"]


@pytest.mark.server("plain")
def test_a_log_without_the_line_contradicts(lab_server: Start, tmp_path: Path) -> None:
    server = lab_server(LabSpec())
    lines = server.log_path.read_bytes().splitlines(keepends=True)
    silent = tmp_path / "server.log"
    silent.write_bytes(b"".join(line for line in lines if b"LoadKernel" not in line))
    code, document = prove(server, "--log", str(silent))
    assert (code, document["verdict"], document["reason"]["id"]) == (1, "DISAGREE", "witnesses_disagree")
    assert "log contradicts: " in document["summary"] and "counters: 2 of 2" in document["summary"]
    # Rotated, it says nothing.
    silent.write_bytes(b"".join(lines[-3:]))
    code, document = prove(server, "--log", str(silent))
    assert (code, document["verdict"], says(document)["log"]) == (0, "FIRED", "cannot_say")


@pytest.mark.server("off")
def test_all_three_agree_where_nothing_fires(lab_server: Start) -> None:
    server = lab_server(LabSpec(profile="off"))
    code, document = prove(server, "--witness", ALL, "--log", str(server.log_path))
    assert (code, document["verdict"], document["reason"]["id"]) == (1, "NOT_FIRED", "flag_off")
    assert says(document) == {"counters": "seen", "log": "cannot_say", "trace": "cannot_say"}
    assert "bears the counters out" in details(document)["log"]
    assert "0 run(s)" in details(document)["trace"]
