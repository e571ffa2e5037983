"""The comparison of answers over HTTP: what is sent, and what each kind of answer comes to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import prove_rig
import pytest
from cli_run import Ran, fastfill
from contract_server import ContractServer
from test_explain import HALF, PREFIX, checkpoint


def prove(server: ContractServer, *more: str) -> tuple[Ran, dict[str, Any]]:
    return prove_rig.prove(server, "--load", "0", *more)


def test_right(server: ContractServer) -> None:
    ran, document = prove(server)
    assert (ran.code, document["verdict"], document["answers"]["status"]) == (0, "FIRED", "right")
    logprobs, needles = document["answers"]["checks"]
    assert (logprobs["check"], logprobs["status"], logprobs["figures"]["places"]) == ("logprobs", "right", 24)
    assert (needles["check"], needles["status"], needles["figures"]["found"]) == ("needles", "right", 5)
    cost = 2 * 2048 + 2 * (2048 + 682 + 61) + 2 * 2048
    assert f"will send {cost} prompt tokens" in ran.err
    assert "ok    answers, logprobs" in ran.err


def test_both_sides_get_the_same_prompt_each_in_a_cache_of_its_own(server: ContractServer) -> None:
    prove(server)
    asked = [body for body in server.requests if body.get("return_logprob")]
    assert len(asked) == 6
    for fast, fallback in zip(asked[::2], asked[1::2], strict=True):
        assert fast["input_ids"] == fallback["input_ids"]
        assert fallback["rid"].startswith("fastfill-fallback-") and not fast["rid"].startswith("fastfill-fallback-")
        assert fast["extra_key"] != fallback["extra_key"]
        assert "logprob_start_len" not in fast, "prompt log probabilities would cap the radix hit and cost memory"
    assert [len(body["input_ids"]) for body in asked[::2]] == [2048, 682, 61]
    assert len({tuple(body["input_ids"]) for body in asked}) == 3


@pytest.mark.parametrize(
    ("spoiled", "reason"),
    [
        ({"shift": 0.3}, "answers_differ"),
        ({"shift": float("nan")}, "answers_not_finite"),
        ({"lost": 2}, "needles_lost"),
    ],
)
def test_wrong(server: ContractServer, spoiled: dict[str, Any], reason: str) -> None:
    for name, value in spoiled.items():
        setattr(server, name, value)
    ran, document = prove(server)
    assert (ran.code, document["verdict"], document["reason"]["id"]) == (1, "WRONG", reason)
    assert document["answers"]["status"] == "wrong"
    assert f"fastfill path off --url {server.url}" in document["reason"]["fix"]


def test_a_single_lost_needle_is_searched_for_again_and_is_no_verdict(server: ContractServer) -> None:
    server.lost = 1
    ran, document = prove(server)
    assert (ran.code, document["reason"]["id"]) == (1, "needles_lost"), "lost again"
    texts = [body for body in server.requests if "messages" in body]
    assert len(texts) == 4, "twice on the fast path and twice on the fallback"


@pytest.mark.parametrize(
    ("spoiled", "status", "says"),
    [
        ({"retrieves": False}, "right", "cannot retrieve"),
        ({"chat_status": 400}, "right", "no chat template"),
        ({"allow_fallback": False}, "cannot_say", "does not allow forced fallbacks"),
        ({"top": False}, "cannot_say", "no log probabilities"),
    ],
)
def test_what_cannot_be_said_is_said(server: ContractServer, spoiled: dict[str, Any], status: str, says: str) -> None:
    for name, value in spoiled.items():
        setattr(server, name, value)
    ran, document = prove(server)
    assert (ran.code, document["verdict"], document["answers"]["status"]) == (0, "FIRED", status)
    assert says in document["answers"]["detail"]
    assert "answers:  " + status in fastfill("prove", "--url", server.url).out
    assert document["summary"].endswith("whether its answers are right is NOT shown") == (status == "cannot_say")


def test_scales_that_an_unpatched_release_gets_wrong_are_wrong_though_no_answers_can_be_compared(
    server: ContractServer, tmp_path: Path
) -> None:
    """There the plugin sees the path fire, no fallback can be asked for, and the checkpoint is on this machine."""
    model = checkpoint(tmp_path / "m", {PREFIX + "k_proj.k_scale": HALF})
    server.layers = json.loads((model / "config.json").read_text())["num_hidden_layers"]
    server.status_extra = {"sglang": "0.5.17", "patched": False}
    server.server_info = {"version": "0.5.17", "model_path": str(model), "kv_cache_dtype": "fp8_e4m3"}
    ran, document = prove(server, "--evidence", str(tmp_path / "e"))
    assert (ran.code, document["verdict"], document["reason"]["id"]) == (1, "WRONG", "kv_scales")
    assert f"{PREFIX}k_proj.k_scale = 0.5" in document["summary"]
    assert "path off" not in document["reason"]["fix"], "an unpatched server has no such switch"
    again = fastfill("prove", "--replay", str(tmp_path / "e"))
    assert again.code == 1 and "WRONG" in again.out
    # Elsewhere than beside the checkpoint nobody knows, and the verdict does not claim more.
    server.server_info |= {"model_path": "org/elsewhere"}
    ran, document = prove(server)
    assert (ran.code, document["verdict"], document["answers"]["status"]) == (0, "FIRED", "cannot_say")
    assert "whether its answers are right is NOT shown" in document["summary"]
    assert document["next_step"].startswith(f"fastfill explain --url {server.url}")
    assert prove(server, "--model-config", str(model))[1]["reason"]["id"] == "kv_scales"
    # Patched, it descales right.
    server.server_info |= {"version": "0.5.23", "model_path": str(model)}
    server.status_extra = {"sglang": "0.5.23", "patched": True}
    assert prove(server)[1]["verdict"] == "FIRED"


def test_a_trained_model_is_asked_in_its_own_ids(server: ContractServer) -> None:
    task = {"filler": [10, 250], "keys": [256, 384], "values": [640, 768]}
    server.status_extra = {"model": {"attention_layers": 2, "head_dim": 256, "retrieval": task}}
    _, document = prove(server)
    assert document["answers"]["checks"][1]["status"] == "cannot_say", "this pretended server answers with 7"
    posed = [
        body for body in server.requests if body["sampling_params"]["max_new_tokens"] == 1 and "answer" in body["rid"]
    ]
    assert len(posed) == 10 and all(256 <= body["input_ids"][-1] < 384 for body in posed)


def test_the_time_runs_out(server: ContractServer) -> None:
    """A proof that did not come to the answers is no pass."""
    from fastfill.proof import answers_send

    waited: list[str] = []

    def late(visit: Any, *_: Any) -> None:
        waited.append("late")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answers_send, "_ask", late)
        ran, document = prove(server)
    assert waited and (ran.code, document["verdict"], document["reason"]["id"]) == (3, "NOT_EXERCISED", "deadline")
