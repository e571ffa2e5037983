"""Data parallelism: a probe goes to each rank, since idle ones make no call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from test_prove_live import prove
from test_prove_witnesses import ALL, details, says

from fastfill.lab.server import LabServer
from fastfill.lab.spec import LabSpec

Start = Callable[[LabSpec], LabServer]
TWO = ("--dp-size", "2")
SERVERS = {
    "replicas": (LabSpec(flags=TWO, allow=("all",)), [(0, 0), (1, 0)]),
    "attention": (LabSpec(tp=2, flags=(*TWO, "--enable-dp-attention"), allow=("all",)), [(0, 0), (1, 1)]),
}


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=pytest.mark.server(f"dp {kind}")) for kind in SERVERS])
def test_each_data_parallel_rank_is_proven_by_a_probe_of_its_own(lab_server: Start, kind: str) -> None:
    spec, ranks = SERVERS[kind]
    server = lab_server(spec)
    words = ("--witness", ALL, "--log", str(server.log_path), "--prompt-tokens", "300", "--load", "4")
    code, document = prove(server, *words, "--deadline", "240")
    assert (code, document["verdict"]) == (0, "FIRED"), document
    assert [(one["rank"]["dp"], one["rank"]["tp"]) for one in document["ranks"]] == ranks
    assert [(one["expected_calls"], one["observed_calls"]) for one in document["ranks"]] == [(2, 2), (2, 2)]
    assert says(document) == {"counters": "seen", "log": "seen", "trace": "seen"}, document["witnesses"]
    assert details(document)["trace"].count("2 call(s) in the ring") == 2
    assert document["answers"]["status"] == "right" and document["answers"]["checks"][0]["figures"]["prompts"] == 6
    load: dict[str, Any] = document["coverage"]["load"]
    assert (load["prompts"], load["attention_work"]) == (4, 1.0)
