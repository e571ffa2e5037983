"""``fastfill prove`` as a process, against a server that speaks the contract: every verdict, and what it says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from cli_run import fastfill
from contract_server import HOOK, ContractServer, Stranger
from prove_rig import prove, steps_without

from fastfill.proof import gather
from fastfill.proof.answers_send import compare
from fastfill.proof.load import load


@pytest.fixture(autouse=True)
def without_answers_and_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """These have tests of their own: test_prove_answers.py, test_prove_load.py."""
    monkeypatch.setattr(gather, "STEPS", steps_without(compare, load))


def test_fired(server: ContractServer) -> None:
    ran, document = prove(server)
    assert (ran.code, document["verdict"], document["schema"]) == (0, "FIRED", "fastfill.prove/1")
    assert document["ranks"][0]["expected_calls"] == document["ranks"][0]["observed_calls"] == 2
    assert document["control"]["status"] == "passed"
    assert document["witnesses"][0]["says"] == "seen"
    assert (document["coverage"]["tokens"], document["coverage"]["attention_work"]) == (0.75, 0.75)
    assert document["coverage"]["stopped"] == {"prefix_radix": 0.25}
    assert "will send 4096 prompt tokens" in ran.err
    assert "never-print-me" not in ran.out + ran.err


def test_as_a_process_stdout_holds_one_document_and_nothing_else(server: ContractServer) -> None:
    command = [sys.executable, "-m", "fastfill", "prove", "--url", server.url, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and json.loads(done.stdout)["verdict"] == "FIRED"


def test_the_probe_is_what_no_cache_can_know(server: ContractServer) -> None:
    prove(server)
    prove(server)
    bodies = server.requests
    assert len(bodies) == 4
    assert all(len(body["input_ids"]) == 2048 and set(body["input_ids"]) <= set(range(40, 90)) for body in bodies)
    assert len({tuple(body["input_ids"]) for body in bodies}) == 4
    assert len({body["rid"] for body in bodies}) == len({body["extra_key"] for body in bodies}) == 4
    assert [body["rid"].rsplit("-", 1)[0] for body in bodies] == ["fastfill-probe", "fastfill-fallback-probe"] * 2
    assert all(body["sampling_params"]["max_new_tokens"] == 1 for body in bodies)


def test_fired_on_two_ranks(server: ContractServer) -> None:
    server.tp = 2
    ran, document = prove(server)
    assert ran.code == 0
    assert [one["rank"]["tp"] for one in document["ranks"]] == [0, 1]


def test_text_for_people(server: ContractServer) -> None:
    ran = fastfill("prove", "--url", server.url)
    assert ran.code == 0
    assert ran.out.splitlines()[0].split() == ["rank", "pid", "passes", "expected", "observed", "reasons"]
    assert "FIRED: all 2 prefill attention calls on 1 rank(s) took the fast path" in ran.out
    assert "\x1b" not in ran.out + ran.err
    assert [line.split(":")[0].split()[-1] for line in ran.err.splitlines()] == [
        "server", "witness", "probe", "probe", "control", "log",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "reason",
    ["flag_off", "operator_off", "kernel_missing", "head_dim_not_256", "gqa_ratio", "kv_dtype_not_fp8", "prefix_radix"],
)
def test_not_fired_names_the_reason(server: ContractServer, reason: str) -> None:
    server.reason = reason
    ran, document = prove(server)
    assert (ran.code, document["verdict"], document["reason"]["id"]) == (1, "NOT_FIRED", reason)
    assert document["reason"]["meaning"] and document["reason"]["fix"]
    assert document["ranks"][0]["reasons"] == {reason: 2}
    assert document["control"]["status"] == "not_run" and len(server.requests) == 1


def test_kill_switch_fix_carries_the_url(server: ContractServer) -> None:
    server.reason = "operator_off"
    server.path = {"path": "off", "who": "ada@host", "why": "odd answers", "when": "2026-01-01T00:00:00+00:00"}
    _, document = prove(server)
    assert document["reason"]["fix"].endswith(f"fastfill path on --url {server.url}")
    assert document["next_step"] == f"apply the fix, then: fastfill prove --url {server.url}"
    assert any("ada@host" in note and "odd answers" in note for note in document["notes"])


def test_another_backend_speaks_through_the_status(server: ContractServer) -> None:
    server.kernel = "triton"
    server.status_extra = {"backend": "TritonAttnBackend", "patched": False}
    ran, document = prove(server)
    assert (ran.code, document["verdict"], document["reason"]["id"]) == (1, "NOT_FIRED", "backend_not_aiter")


def test_unpatched_server(server: ContractServer) -> None:
    server.kernel = "ck"
    server.status_extra = {"patched": False}
    ran, document = prove(server)
    assert (ran.code, document["verdict"], document["reason"]["id"]) == (1, "NOT_FIRED", "unpatched")


NEWER = {"sglang": "0.5.20", "patched": False}


def test_an_unpatched_sglang_that_has_the_path_is_proven_without_a_control(server: ContractServer) -> None:
    server.status_extra = NEWER
    server.server_info = {"version": "0.5.20"}
    ran, document = prove(server)
    assert (ran.code, document["verdict"]) == (0, "FIRED")
    assert document["control"]["status"] == "not_possible"
    assert "unpatched" in document["control"]["detail"]
    assert any("SGLang 0.5.20 is unpatched: it has its own path" in note for note in document["notes"])
    assert "FASTFILL_ALLOW_FORCED_FALLBACK" not in document["next_step"]


@pytest.mark.parametrize(
    ("model", "kv", "reason"),
    [
        ({"head_dim": 128}, "fp8_e4m3", "head_dim_not_256"),
        ({"num_attention_heads": 12, "num_key_value_heads": 2}, "fp8_e4m3", "gqa_ratio"),
        ({}, "auto", "kv_dtype_not_fp8"),
        ({"num_attention_heads": 8, "num_key_value_heads": 1}, "fp8_e4m3", "unexplained"),
    ],
)
def test_what_stops_an_unpatched_sglangs_own_path_is_told_by_the_model_and_the_flags(
    server: ContractServer, model: dict[str, int], kv: str, reason: str
) -> None:
    server.kernel = "ck"
    layers = {"attention_layers": server.layers, "num_hidden_layers": server.layers, "head_dim": 256}
    server.status_extra = {**NEWER, "model": layers | model}
    server.server_info = {"kv_cache_dtype": kv}
    ran, document = prove(server)
    assert (ran.code, document["verdict"], document["reason"]["id"]) == (1, "NOT_FIRED", reason)


def test_head_dim_128_on_assembly_is_not_ours(server: ContractServer) -> None:
    server.head_dim = 128
    ran, document = prove(server)
    assert (ran.code, document["verdict"], document["reason"]["id"]) == (1, "NOT_FIRED", "unexplained")
    assert document["ranks"][0]["calls"][0]["head_dim"] == 128


def test_missing_kernel_explains_a_hook_without_target(server: ContractServer) -> None:
    server.reason = "kernel_missing"
    server.status_extra = {
        "hooks": {HOOK: False},
        "deployment": {"kernel_missing": {"status": "fail", "value": "no function"}},
    }
    ran, document = prove(server)
    assert (ran.code, document["verdict"], document["reason"]["id"]) == (1, "NOT_FIRED", "kernel_missing")
    assert document["reason"]["seen"] == "no function"


def test_shared_with_a_foreign_prefix_is_sent_again(server: ContractServer) -> None:
    server.strangers = [Stranger(prefix=200, extend=1), Stranger(prefix=16), None]
    ran, document = prove(server)
    assert (ran.code, document["verdict"]) == (0, "FIRED")
    assert [one["outcome"] for one in document["attempts"]] == ["void", "void", "valid", "valid"]
    assert len({one["rid"] for one in document["attempts"]}) == 4


def test_all_void_is_not_exercised(server: ContractServer) -> None:
    server.strangers = [Stranger(prefix=200, extend=1)] * 5
    ran, document = prove(server)
    assert (ran.code, document["verdict"], document["reason"]["id"]) == (3, "NOT_EXERCISED", "no_fair_trial")
    assert len(server.requests) == 5


def test_all_cached_is_not_exercised(server: ContractServer) -> None:
    server.own_prefix = [64] * 3
    ran, document = prove(server, "--attempts", "3")
    assert (ran.code, document["verdict"], document["reason"]["id"]) == (3, "NOT_EXERCISED", "no_fair_trial")


def test_background_traffic_does_not_blur_it(server: ContractServer) -> None:
    server.reason = "flag_off"
    server.background = lambda: server.prefill("other-user", 512, reason="")
    ran, document = prove(server)
    assert (ran.code, document["reason"]["id"], document["ranks"][0]["observed_calls"]) == (1, "flag_off", 0)


def test_a_health_probe_in_the_same_pass_is_harmless(server: ContractServer) -> None:
    server.strangers = [Stranger(rid="HEALTH_CHECK_1", extend=1)]
    ran, document = prove(server)
    assert (ran.code, document["verdict"], len(server.requests)) == (0, "FIRED", 2)


def test_no_plugin(server: ContractServer) -> None:
    server.plugin = False
    ran, document = prove(server)
    assert (ran.code, document["verdict"], document["reason"]["id"]) == (1, "INVALID", "plugin_not_attached")
    assert server.requests == []


def test_metrics_off(server: ContractServer) -> None:
    server.metrics = False
    ran, document = prove(server)
    assert (ran.code, document["verdict"], document["reason"]["id"]) == (1, "INVALID", "metrics_off")
    assert "--enable-metrics" in document["reason"]["fix"]


def test_hook_missing(server: ContractServer) -> None:
    server.status_extra = {"hooks": {HOOK: False}}
    ran, document = prove(server)
    assert (ran.code, document["verdict"], document["reason"]["id"]) == (1, "INVALID", "hook_missing")


def test_plugin_on_one_rank_only(server: ContractServer) -> None:
    server.tp, server.reported_ranks = 2, 1
    ran, document = prove(server, "--deadline", "20")
    assert (ran.code, document["verdict"], document["reason"]["id"]) == (1, "INVALID", "rank_without_witness")


@pytest.mark.parametrize("factor", [0.0, 0.5])
def test_counters_that_stand_still(server: ContractServer, factor: float) -> None:
    server.count_in_metrics = factor
    ran, document = prove(server)
    assert (ran.code, document["verdict"], document["reason"]["id"]) == (1, "INVALID", "counters_contradict_ring")
    assert document["witnesses"][0]["says"] == "contradicts"


def test_path_on_one_rank_of_two(server: ContractServer) -> None:
    server.tp, server.reasons_by_rank = 2, {1: "flag_off"}
    ran, document = prove(server)
    assert (ran.code, document["verdict"], document["reason"]["id"]) == (1, "PARTIAL", "flag_off")
    assert "pp0 dp0 tp1 0 of 2" in document["summary"] and "tp0" not in document["summary"]


def test_path_on_one_layer_of_two(server: ContractServer) -> None:
    server.calls_per_pass = {0: 1}
    ran, document = prove(server)
    assert (ran.code, document["verdict"]) == (1, "PARTIAL")
    assert "1 of 2" in document["summary"]


def test_rank_that_saw_no_pass(server: ContractServer) -> None:
    server.tp, server.rank_without_pass = 2, 1
    ran, document = prove(server)
    assert (ran.code, document["verdict"], document["reason"]["id"]) == (1, "PARTIAL", "rank_unseen")


def test_more_calls_than_layers(server: ContractServer) -> None:
    server.calls_per_pass = {0: 3}
    ran, document = prove(server)
    assert (ran.code, document["verdict"], document["reason"]["id"]) == (1, "INVALID", "too_many_calls")


def test_control_that_fires(server: ContractServer) -> None:
    server.control_ignored = True
    ran, document = prove(server)
    assert (ran.code, document["verdict"], document["reason"]["id"]) == (1, "INVALID", "control_fired")
    assert document["control"]["status"] == "failed"


def test_control_off_the_path_for_another_reason(server: ContractServer) -> None:
    server.control_reason = "prefix_radix"
    ran, document = prove(server)
    assert (ran.code, document["verdict"], document["reason"]["id"]) == (1, "INVALID", "control_unexplained")


def test_control_not_allowed(server: ContractServer) -> None:
    server.allow_fallback = False
    server.server_info = {"disable_radix_cache": True}
    ran, document = prove(server)
    assert (ran.code, document["verdict"], document["control"]["status"]) == (0, "FIRED", "not_possible")
    assert "not possible" in ran.err and len(server.requests) == 1


def test_two_servers_behind_one_address(server: ContractServer) -> None:
    seen: list[int] = []
    server.pids = lambda rank: seen.append(1) or (100 if len(seen) < 3 else 999)  # type: ignore[func-returns-value]
    ran, document = prove(server)
    assert (ran.code, document["verdict"], document["reason"]["id"]) == (1, "INVALID", "several_servers")


def test_probe_answered_elsewhere(server: ContractServer) -> None:
    server.remember = False
    ran, document = prove(server)
    assert (ran.code, document["verdict"], document["reason"]["id"]) == (1, "INVALID", "probe_unseen")


def test_probe_longer_than_the_context(server: ContractServer) -> None:
    ran, document = prove(server, "--prompt-tokens", "9000")
    assert (ran.code, document["verdict"], document["reason"]["id"]) == (3, "NOT_EXERCISED", "prompt_too_long")
    assert server.requests == []


def test_probe_fits_a_short_context_and_a_chunk(server: ContractServer) -> None:
    server.context_len = 512
    prove(server)
    server.chunk = 128
    ran, document = prove(server)
    assert [len(body["input_ids"]) for body in server.requests] == [256, 256, 128, 128]
    assert ran.code == 0 and any("--chunked-prefill-size is 128" in note for note in document["notes"])


def test_a_probe_of_several_chunks_is_partial(server: ContractServer) -> None:
    server.chunk = 128
    ran, document = prove(server, "--prompt-tokens", "300")
    assert (ran.code, document["verdict"], document["reason"]["id"]) == (1, "PARTIAL", "prefix_chunk")
    assert (document["ranks"][0]["expected_calls"], document["ranks"][0]["observed_calls"]) == (6, 2)
    assert document["control"]["status"] == "passed"


def test_server_refuses_the_probe(server: ContractServer) -> None:
    server.generate_status = 400
    ran, document = prove(server)
    assert (ran.code, document["verdict"], document["reason"]["id"]) == (3, "NOT_EXERCISED", "probe_refused")


def test_topology_that_cannot_be_proven(server: ContractServer) -> None:
    server.server_info = {"nnodes": 2}
    ran, document = prove(server)
    assert (ran.code, document["verdict"], document["reason"]["id"]) == (1, "INVALID", "topology_refused")


def test_model_config_disagrees(server: ContractServer, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"text_config": {"num_hidden_layers": 8, "full_attention_interval": 4}}))
    assert prove(server, "--model-config", str(config))[0].code == 0
    config.write_text(json.dumps({"num_hidden_layers": 8}))
    ran, document = prove(server, "--model-config", str(tmp_path))
    assert (ran.code, document["verdict"], document["reason"]["id"]) == (1, "INVALID", "layers_disagree")


def test_key_missing_wrong_and_right(server: ContractServer, tmp_path: Path) -> None:
    server.key = "s3cret"
    ran, document = prove(server)
    assert (ran.code, document["verdict"]) == (2, None)
    assert "asks for an API key" in ran.err and "--api-key-file" in document["error"]["next_step"]
    file = tmp_path / "key"
    file.write_text("wrong\n")
    ran, _ = prove(server, "--api-key-file", str(file))
    assert ran.code == 2 and "refused the API key" in ran.err and "wrong" not in ran.err
    file.write_text("s3cret\n")
    assert prove(server, "--api-key-file", str(file))[0].code == 0
    assert prove(server, env={"FASTFILL_API_KEY": "s3cret"})[0].code == 0
