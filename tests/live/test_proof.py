"""The proof of a running server as assertions. Nothing here may skip: what was not shown was not proven."""

from __future__ import annotations

from typing import Any


def test_the_path_fires(proof: dict[str, Any]) -> None:
    assert proof["error"] is None, proof["error"]
    assert (proof["verdict"], proof["exit_code"]) == ("FIRED", 0), f"{proof['summary']} next: {proof['next_step']}"


def test_every_layer_of_every_rank_fired(proof: dict[str, Any]) -> None:
    assert proof["ranks"], "no rank was seen"
    assert proof["unseen"] == []
    for rank in proof["ranks"]:
        assert rank["passes"] > 0, rank
        assert rank["observed_calls"] == rank["expected_calls"], rank


def test_no_witness_contradicts_and_the_counters_have_seen_it(proof: dict[str, Any]) -> None:
    says = {one["witness"]: one["says"] for one in proof["witnesses"]}
    assert says["counters"] == "seen", proof["witnesses"]
    assert "contradicts" not in says.values(), proof["witnesses"]
    assert all(one["says"] == "seen" for one in proof["witnesses"] if one["named"]), proof["witnesses"]


def test_the_negative_control_did_not_fire(proof: dict[str, Any]) -> None:
    assert proof["control"]["status"] in ("passed", "not_possible"), proof["control"]


def test_the_answers_are_right_or_could_not_be_compared(proof: dict[str, Any]) -> None:
    assert proof["answers"]["status"] in ("right", "cannot_say"), proof["answers"]
