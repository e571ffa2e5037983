"""`fastfill prove` against real lab servers: the verdict, the reason and the exit code."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from client import Client, prompt

from fastfill.lab.server import LabServer
from fastfill.lab.spec import LabSpec

Start = Callable[[LabSpec], LabServer]


def prove(server: LabServer, *words: str) -> tuple[int, dict[str, Any]]:
    """Run the command as an operator would; returns its exit code and document."""
    argv = [sys.executable, "-m", "fastfill", "prove", "--url", server.url, "--json", "--load", "0", *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    print(done.stderr)
    return done.returncode, json.loads(done.stdout)


@pytest.mark.server("plain")
def test_fired(lab_server: Start) -> None:
    code, document = prove(lab_server(LabSpec()))
    assert (code, document["verdict"]) == (0, "FIRED")
    assert document["ranks"][0]["expected_calls"] == document["ranks"][0]["observed_calls"] == 2
    assert document["control"]["status"] == "passed"


@pytest.mark.server("plain")
def test_fired_while_others_use_the_server(lab_server: Start) -> None:
    server = lab_server(LabSpec())
    client, done = Client(server), threading.Event()

    def traffic() -> None:
        ids = prompt(90)
        while not done.is_set():
            client.generate(ids, new=2)
            client.http.get("/health")

    thread = threading.Thread(target=traffic)
    thread.start()
    try:
        code, document = prove(server)
    finally:
        done.set()
        thread.join()
    assert (code, document["verdict"]) == (0, "FIRED")


@pytest.mark.server("plain")
def test_kill_switch(lab_server: Start) -> None:
    server = lab_server(LabSpec())

    def path(*words: str) -> None:
        subprocess.run([sys.executable, "-m", "fastfill", "path", *words, "--url", server.url], check=True, timeout=60)

    why = "no other test says this"
    path("off", "--why", why)
    try:
        code, document = prove(server)
    finally:
        path("on")
    assert (code, document["verdict"], document["reason"]["id"]) == (1, "NOT_FIRED", "operator_off")
    assert (server.state_dir / "audit.jsonl").read_text().count(why) == 1
    assert prove(server)[0] == 0


NOT_FIRED = {
    "flag_off": LabSpec(profile="off"),
    "kernel_missing": LabSpec(env={"AITER_EMULATOR_FAULT": "no_hd256"}),
    "head_dim_not_256": LabSpec(model="dense-hd128", allow=("all",)),
    "gqa_ratio": LabSpec(model="dense-gqa6", allow=("all",)),
    "kv_dtype_not_fp8": LabSpec(flags=("--kv-cache-dtype", "bf16"), allow=("all",)),
    "backend_not_aiter": LabSpec(flags=("--attention-backend", "triton"), allow=("all",)),
}


@pytest.mark.parametrize(
    "id",
    [pytest.param(id, marks=pytest.mark.server("off" if id == "flag_off" else id), id=id) for id in NOT_FIRED],
)
def test_not_fired(lab_server: Start, id: str) -> None:
    # SGLang's Triton kernels run in Triton's interpreter here: a short probe shows the same.
    code, document = prove(lab_server(NOT_FIRED[id]), "--prompt-tokens", "64")
    assert (code, document["verdict"], document["reason"]["id"]) == (1, "NOT_FIRED", id)
    assert document["reason"]["fix"]


@pytest.mark.server("no_function")
def test_an_aiter_without_the_function_is_kernel_missing(lab_server: Start) -> None:
    server = lab_server(LabSpec(env={"AITER_EMULATOR_FAULT": "no_function"}))
    assert len(Client(server).tokens(prompt(50))) == 4, "it serves all the same"
    code, document = prove(server)
    assert (code, document["verdict"], document["reason"]["id"]) == (1, "NOT_FIRED", "kernel_missing")


@pytest.mark.server("no plugin")
def test_invalid_without_the_plugin(lab_server: Start) -> None:
    code, document = prove(lab_server(LabSpec(env={"SGLANG_PLUGINS": "none"}, allow=("all",))))
    assert (code, document["verdict"]) == (1, "INVALID")


@pytest.mark.server("tp2")
def test_tensor_parallel_2_is_proven_on_both_ranks(lab_server: Start) -> None:
    code, document = prove(lab_server(LabSpec(tp=2)))
    assert (code, document["verdict"]) == (0, "FIRED")
    assert [(r["rank"]["tp"], r["observed_calls"]) for r in document["ranks"]] == [(0, 2), (1, 2)]


@pytest.mark.server("hybrid")
def test_the_hybrid_model_is_proven_by_its_full_attention_layers(lab_server: Start) -> None:
    code, document = prove(lab_server(LabSpec(model="hybrid")))
    assert (code, document["verdict"]) == (0, "FIRED")
    assert document["ranks"][0]["expected_calls"] == 1


@pytest.mark.server("plain")
def test_a_longer_prompt_than_the_context_is_not_exercised(lab_server: Start) -> None:
    code, document = prove(lab_server(LabSpec()), "--prompt-tokens", "100000")
    assert (code, document["verdict"]) == (3, "NOT_EXERCISED")
