"""Contradictory settings: found, named by their condition, refused or said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fastfill.serving.checks import Installed
from fastfill.serving.launch import Launch, Request, prepare
from fastfill.serving.profile import available, load
from sglang_fastfill.conditions import BY_ID


def launch(
    *words: str,
    profile: str = "long-context",
    environ: dict[str, str] | None = None,
    installed: Installed | None = None,
    model: Path | str = "org/model",
    allow: tuple[str, ...] = (),
) -> Launch:
    request = Request(profile=load(profile), options={"model-path": str(model)}, extra=list(words), allow=list(allow))
    return prepare(request, environ={"HF_HOME": "/nowhere", **(environ or {})}, python="python", installed=installed)


def found(*words: str, **more: object) -> set[tuple[str, str]]:
    return {(finding.id, finding.severity) for finding in launch(*words, **more).findings}  # type: ignore[arg-type]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """32 q heads, 2 kv heads of 256: as the 397B model."""
    config = {"num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 256, "max_position_embeddings": 1 << 20}
    (tmp_path / "config.json").write_text(json.dumps({"text_config": config}))
    return tmp_path


@pytest.mark.parametrize("profile", sorted(set(available()) - {"balanced"}))
def test_the_shipped_profiles_have_nothing_to_say(profile: str, model: Path) -> None:
    assert found(profile=profile, model=model) == set()


def test_balanced_says_what_chunking_does() -> None:
    assert found(profile="balanced") == {("prefix_chunk", "note")}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--attention-backend triton", ("backend_not_aiter", "refuse")),
        ("--prefill-attention-backend triton", ("backend_not_aiter", "refuse")),
        ("--decode-attention-backend triton", ("backend_not_aiter", "warn")),
        ("--nnodes 2", ("unsupported_topology", "refuse")),
        ("--pp-size 2", ("unsupported_topology", "refuse")),
        ("--pipeline-parallel-size 2", ("unsupported_topology", "refuse")),
        ("--pp 2", ("unsupported_topology", "refuse")),
        ("--disaggregation-mode prefill", ("unsupported_topology", "refuse")),
        ("--kv-cache-dtype auto", ("kv_dtype_not_fp8", "refuse")),
        ("--kv-cache-dtype bfloat16", ("kv_dtype_not_fp8", "refuse")),
        ("--enable-prefill-cp", ("context_parallel", "refuse")),
        ("--attn-cp-size 2", ("context_parallel", "refuse")),
        ("--cuda-graph-backend-prefill full", ("graph_capture", "refuse")),
        ('--cuda-graph-config {"prefill":{"backend":"full"}}', ("graph_capture", "refuse")),
        ("--enable-mixed-chunk", ("prefix_mixed", "warn")),
        ("--chunked-prefill-size 100", ("chunk_not_page_multiple", "refuse")),
        ("--chunked-prefill-size 16384", ("prefix_chunk", "note")),
        ("--page-size 0", ("not_positive", "refuse")),
        ("--config file.yaml", ("config_file", "warn")),
    ],
)
def test_a_flag(words: str, expected: tuple[str, str]) -> None:
    assert expected in found(*words.split())


def test_only_a_full_prefill_graph_is_refused() -> None:
    assert found("--cuda-graph-backend-prefill", "disabled") == set()
    assert found("--cuda-graph-config", '{"decode":{"backend":"full"}}') == set()


def test_mixed_chunk_with_chunking_on_is_refused() -> None:
    assert ("prefix_mixed", "refuse") in found("--enable-mixed-chunk", profile="balanced")


def test_dp_attention_divides_the_chunk() -> None:
    words = ("--enable-dp-attention", "--dp-size", "8", "--tp-size", "8")
    split = launch(*words, profile="balanced").findings
    assert [finding.what for finding in split if finding.severity == "warn"] == [
        "DP attention divides the chunk by 8: 2048 tokens a rank"
    ]
    assert ("chunk_not_page_multiple", "refuse") in found(*words, "--chunked-prefill-size", "64")
    assert found(*words) == set()


def test_metrics_off_is_said(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("extends = 'long-context'\n[fastfill]\ndescription = 'x'\n[flags]\nenable-metrics = false\n")
    assert found(profile=str(path)) == {("metrics_off", "warn")}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"ENABLE_CK": "0"}, {("ck_disabled", "refuse")}),
        ({"ENABLE_CK": "1"}, set()),
        ({"GPU_ARCHS": "gfx950;gfx942"}, {("arch_not_gfx950", "refuse")}),
        ({"GPU_ARCHS": "gfx942;gfx950"}, set()),
        ({"GPU_ARCHS": "native"}, set()),
        ({"SGLANG_AITER_FMHA_FP8_HD256": "1"}, {("flag_off", "warn")}),
        ({"SGLANG_AITER_FP8_CONTIG_PREFILL": "1"}, {("rival_path", "warn")}),
        ({"SGLANG_AITER_FP8_CONTIG_PREFILL": "0"}, set()),
        ({"SGLANG_PLUGINS": "other"}, {("plugin_excluded", "refuse")}),
        ({"SGLANG_PLUGINS": "other, fastfill"}, set()),
    ],
)
def test_an_inherited_variable(environ: dict[str, str], expected: set[tuple[str, str]]) -> None:
    assert found(environ=environ) == expected


def test_the_near_miss_flag_is_said_when_the_real_one_is_off_too() -> None:
    findings = launch(profile="off", environ={"SGLANG_AITER_FMHA_FP8_HD256": "1"}).findings
    assert [finding.id for finding in findings] == ["flag_off"]
    assert "the flag is SGLANG_AITER_FMHA_FP8_ASM, which is not set" in findings[0].what


@pytest.mark.parametrize(
    ("installed", "expected"),
    [
        (Installed("0.5.16", None), set()),
        (Installed("0.5.23", True), set()),
        (Installed("0.5.23", False), {("kernel_missing", "refuse")}),
        (Installed("0.5.23", None), {("kernel_missing", "warn")}),
        (Installed(None, None), {("kernel_missing", "warn")}),
    ],
)
def test_page_64_needs_an_aiter_with_the_paged_kernel(installed: Installed, expected: set[tuple[str, str]]) -> None:
    assert found("--page-size", "64", installed=installed) == expected
    assert found("--page-size", "64", installed=installed, environ={"SGLANG_AITER_PAGED_PREFILL_ASM": "0"}) == set()


def test_a_batch_beyond_the_kernel_s_addresses_is_refused(model: Path) -> None:
    # 2^32 / (32 heads x 512 bytes) = 262144 tokens; two GPUs have half the heads each.
    over = ("--max-prefill-tokens", "262144", "--mem-fraction-static", "0.1")
    assert ("batch_too_large", "refuse") in found(*over, model=model)
    assert ("batch_too_large", "refuse") not in found("--max-prefill-tokens", "262143", *over[2:], model=model)
    assert ("batch_too_large", "refuse") not in found(*over, "--tp", "2", model=model)


def test_a_lone_prompt_beyond_the_kernel_s_addresses_is_said(model: Path) -> None:
    assert ("batch_too_large", "warn") in found(
        "--context-length", "262144", "--mem-fraction-static", "0.1", model=model
    )


@pytest.mark.parametrize(
    ("heads", "head_dim", "tp", "expected"),
    [
        ((24, 4), 256, "1", {("gqa_ratio", "warn")}),
        ((32, 2), 256, "3", {("heads_do_not_divide", "refuse")}),
        ((32, 2), 256, "8", set()),
        ((64, 1), 256, "1", {("gqa_ratio", "warn")}),
        ((64, 1), 256, "4", set()),
        ((32, 2), 128, "1", {("head_dim_not_256", "warn")}),
    ],
)
def test_a_model_that_the_kernel_cannot_serve_is_said(
    tmp_path: Path, heads: tuple[int, int], head_dim: int, tp: str, expected: set[tuple[str, str]]
) -> None:
    config = {"num_attention_heads": heads[0], "num_key_value_heads": heads[1], "head_dim": head_dim}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert found("--tp", tp, model=tmp_path) == expected


def test_with_the_flag_off_nothing_keeps_the_path_from_firing() -> None:
    words = [
        "--attention-backend",
        "triton",
        "--kv-cache-dtype",
        "auto",
        "--pp-size",
        "2",
        "--cuda-graph-backend-prefill",
        "full",
    ]
    assert found(*words, profile="off", environ={"ENABLE_CK": "0", "GPU_ARCHS": "gfx942"}) == set()
    assert found("--chunked-prefill-size", "100", profile="off") == {("chunk_not_page_multiple", "refuse")}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"path": "on"}', None),
        ('{"path": "off", "who": "ann", "why": "ticket 1", "when": "today"}', "by ann at today: ticket 1"),
        ("half a f", "cannot be understood"),
        ("[]", "cannot be understood"),
    ],
)
def test_a_kill_switch_that_is_still_thrown_is_said(tmp_path: Path, text: str, says: str | None) -> None:
    (tmp_path / "path.json").write_text(text)
    findings = launch(environ={"FASTFILL_STATE_DIR": str(tmp_path)}).findings
    assert [finding.id for finding in findings] == (["operator_off"] if says else [])
    assert not findings or str(says) in findings[0].what
    assert launch(profile="off", environ={"FASTFILL_STATE_DIR": str(tmp_path)}).findings == []


def test_a_refusal_that_is_allowed_becomes_a_warning() -> None:
    words = ("--attention-backend", "triton", "--kv-cache-dtype", "auto")
    assert found(*words, allow=("backend_not_aiter",)) == {
        ("backend_not_aiter", "warn"),
        ("kv_dtype_not_fp8", "refuse"),
    }
    assert {severity for _, severity in found(*words, allow=("all",))} == {"warn"}


def test_every_finding_that_is_a_condition_gives_its_fix() -> None:
    findings = launch("--attention-backend", "triton", "--kv-cache-dtype", "auto").findings
    assert all(finding.fix == BY_ID[finding.id].fix for finding in findings)
