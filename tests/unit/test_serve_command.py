"""The exact command that a launch runs, and the environment that it sets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fastfill.errors import UsageError
from fastfill.serving.command import state_dir
from fastfill.serving.flags import Flag, number, parse, redact
from fastfill.serving.launch import Launch, Request, prepare
from fastfill.serving.profile import load

HOME = {"HOME": "/home/op", "XDG_STATE_HOME": "/state", "HF_HOME": "/nowhere"}


def launch(profile: str = "long-context", environ: dict[str, str] | None = None, **request: object) -> Launch:
    options = {"model-path": "org/model", **request.pop("options", {})}  # type: ignore[dict-item]
    wanted = Request(profile=load(profile), options=options, **request)  # type: ignore[arg-type]
    return prepare(wanted, environ=HOME if environ is None else {**HOME, **environ}, python="/usr/bin/python3")


def flags_of(made: Launch) -> str:
    assert made.command.argv[:3] == ["/usr/bin/python3", "-m", "sglang.launch_server"]
    return " ".join(made.command.argv[3:])


LONG = (
    "--attention-backend aiter --kv-cache-dtype fp8_e4m3 --chunked-prefill-size -1 --max-prefill-tokens 65536 "
    "--page-size 16 --enable-metrics"
)


@pytest.mark.parametrize(
    ("profile", "options", "command"),
    [
        (
            "long-context",
            {},
            f"--model-path org/model --host 127.0.0.1 --port 30000 --tp-size 1 {LONG} "
            "--context-length 65536 --mem-fraction-static 0.661",
        ),
        (
            "off",
            {"tp-size": "4", "host": "0.0.0.0", "port": "8000"},
            f"--model-path org/model --host 0.0.0.0 --port 8000 --tp-size 4 {LONG} "
            "--context-length 65536 --mem-fraction-static 0.659",
        ),
        (
            "balanced",
            {},
            "--model-path org/model --host 127.0.0.1 --port 30000 --tp-size 1 --attention-backend aiter "
            "--kv-cache-dtype fp8_e4m3 --chunked-prefill-size 16384 --max-prefill-tokens 16384 --page-size 16 "
            "--enable-metrics --mem-fraction-static 0.911",
        ),
        (
            "long-context-mtp",
            {"tp-size": "2"},
            f"--model-path org/model --host 127.0.0.1 --port 30000 --tp-size 2 {LONG} --speculative-algorithm NEXTN "
            "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 "
            "--max-running-requests 128 --context-length 65536 --mem-fraction-static 0.660",
        ),
    ],
)
def test_the_exact_command_of_every_profile(profile: str, options: dict[str, str], command: str) -> None:
    assert flags_of(launch(profile, options=options)) == command


def test_the_exact_environment() -> None:
    assert launch().command.env == {
        "SGLANG_AITER_FMHA_FP8_ASM": "1",
        "SGLANG_USE_AITER": "1",
        "SGLANG_USE_AITER_UNIFIED_ATTN": "0",
        "ROCM_QUICK_REDUCE_QUANTIZATION": "NONE",
        "FASTFILL_STATE_DIR": "/state/fastfill/30000",
        "FASTFILL_ALLOW_FORCED_FALLBACK": "1",
    }


def test_on_and_off_run_the_same_command_and_differ_in_one_variable() -> None:
    on, off = launch().command, launch("off").command
    assert on.argv == off.argv
    assert {name for name in on.env if on.env[name] != off.env[name]} == {"SGLANG_AITER_FMHA_FP8_ASM"}


def test_the_profile_wins_over_what_an_image_sets_and_says_so() -> None:
    made = launch(environ={"ROCM_QUICK_REDUCE_QUANTIZATION": "INT8", "SGLANG_AITER_FMHA_FP8_ASM": "0"})
    assert made.command.env["ROCM_QUICK_REDUCE_QUANTIZATION"] == "NONE"
    assert "ROCM_QUICK_REDUCE_QUANTIZATION: NONE (long-context) instead of INT8" in made.settings.notes
    assert "SGLANG_AITER_FMHA_FP8_ASM: 1 (long-context) instead of 0" in made.settings.notes


def test_env_wins_over_the_profile() -> None:
    made = launch(env={"ROCM_QUICK_REDUCE_QUANTIZATION": "INT8", "NEW": "x"})
    assert made.command.env["ROCM_QUICK_REDUCE_QUANTIZATION"] == "INT8"
    assert made.command.env["NEW"] == "x"


def test_an_inherited_variable_cannot_allow_the_forced_fallback(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("extends = 'long-context'\n[fastfill]\ndescription = 'x'\nforced_fallback = false\n")
    made = launch(str(path), environ={"FASTFILL_ALLOW_FORCED_FALLBACK": "1"})
    assert made.command.env["FASTFILL_ALLOW_FORCED_FALLBACK"] == "0"


def test_your_flag_replaces_the_profile_s_and_the_note_says_both() -> None:
    made = launch(extra=["--max-prefill-tokens", "512", "--disable-radix-cache"])
    assert flags_of(made).count("--max-prefill-tokens") == 1
    assert flags_of(made).endswith(" --max-prefill-tokens 512 --disable-radix-cache")
    assert made.settings.notes == ("--max-prefill-tokens: 512 (yours) instead of 65536 (long-context)",)


def test_the_same_value_twice_is_no_news() -> None:
    made = launch(extra=["--page-size", "16"])
    assert (flags_of(made).count("--page-size"), made.settings.notes) == (1, ())


@pytest.mark.parametrize("words", [["--tp", "2"], ["--tensor-parallel-size", "2"], ["--tp-size=2"], ["--tp_size", "2"]])
def test_other_spellings_of_a_flag_are_the_same_flag(words: list[str]) -> None:
    made = launch(extra=words)
    assert made.settings.number("tp-size", 0) == 2
    assert "--tp-size 1" not in flags_of(made)


def test_an_option_and_a_flag_that_disagree_are_refused() -> None:
    with pytest.raises(UsageError, match="--port is given twice: 5000, and 6000 after --"):
        launch(options={"port": "5000"}, extra=["--port", "6000"])
    launch(options={"port": "5000"}, extra=["--port", "5000"])


def test_your_port_decides_the_state_folder() -> None:
    assert launch(extra=["--port", "6000"]).state_dir == Path("/state/fastfill/6000")


def test_your_context_length_is_what_memory_is_kept_free_for() -> None:
    made = launch(extra=["--context-length", "100Ki"])
    assert made.memory is not None
    assert made.memory.single_pass_tokens == 102400
    assert flags_of(made).count("--context-length") == 1


def test_your_memory_fraction_is_kept_and_judged() -> None:
    made = launch(extra=["--mem-fraction-static", "0.8"])
    assert flags_of(made).count("--mem-fraction-static") == 1
    assert [finding.id for finding in made.findings] == ["memory_fraction"]
    assert launch(extra=["--mem-fraction-static", "0.5"]).findings == []


def test_the_longest_prompt_sets_both_values() -> None:
    made = launch(longest_prompt=131072)
    assert "--context-length 131072 --mem-fraction-static 0.327" in flags_of(made)


def test_a_prompt_that_leaves_no_room_is_refused_with_the_sum() -> None:
    with pytest.raises(UsageError, match="a pass of 262144 tokens leaves no room") as refused:
        launch(longest_prompt=262144)
    assert "activations" in refused.value.detail


def test_with_chunking_on_the_model_s_context_is_not_cut() -> None:
    assert "--context-length" not in flags_of(launch("balanced"))
    assert "--context-length 131072 --mem-fraction-static 0.911" in flags_of(launch("balanced", longest_prompt=131072))


def test_a_model_s_shorter_context_caps_the_profile_s_prompt(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": 4096}))
    made = launch(options={"model-path": str(tmp_path)})
    assert "--context-length 4096" in flags_of(made)


def test_a_prompt_beyond_the_model_is_said(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"text_config": {"max_position_embeddings": 4096}}))
    made = launch(options={"model-path": str(tmp_path)}, longest_prompt=8192)
    assert [finding.id for finding in made.findings] == ["context_beyond_model"]


def test_weights_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with (tmp_path / "model.safetensors").open("wb") as stream:
        stream.truncate(400 * 2**30)
    with pytest.raises(UsageError, match="no room"):
        launch(options={"model-path": str(tmp_path)})
    made = launch(options={"model-path": str(tmp_path), "tp-size": "8"})
    assert made.memory is not None
    assert made.memory.weights_mib == 50 * 1024


def test_a_hugging_face_id_is_read_from_the_cache(tmp_path: Path) -> None:
    cache = tmp_path / "hub" / "models--org--model"
    (cache / "refs").mkdir(parents=True)
    (cache / "refs" / "main").write_text("abc")
    (cache / "snapshots" / "abc").mkdir(parents=True)
    (cache / "snapshots" / "abc" / "config.json").write_text(json.dumps({"max_position_embeddings": 2048}))
    assert "--context-length 2048" in flags_of(launch(environ={"HF_HOME": str(tmp_path)}))


def test_no_model_and_a_missing_folder_are_usage_errors(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no model is given"):
        prepare(Request(profile=load("off")), environ=HOME, python="python")
    with pytest.raises(UsageError, match="there is no model here"):
        launch(options={"model-path": str(tmp_path / "none")})
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UsageError, match=r"config\.json is not valid JSON"):
        launch(options={"model-path": str(tmp_path)})
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(UsageError, match=r"config\.json holds no object"):
        launch(options={"model-path": str(tmp_path)})


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["stray"], "'stray' belongs to no SGLang flag"),
        (["--page-size=16", "stray"], "'stray' belongs to no SGLang flag"),
        (["--max-prefill-tokens", "many"], "--max-prefill-tokens many is not a whole number"),
        (["--mem-fraction-static", "most"], "--mem-fraction-static most is not a number"),
    ],
)
def test_words_that_make_no_sense_are_usage_errors(words: list[str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        launch(extra=words)


def test_secrets_are_not_printed() -> None:
    secrets = ["--api-key", "s3cret1", "--admin-api-key=s3cret2", "--ssl-keyfile-password", "s3cret3"]
    made = launch(
        extra=[*secrets, "--ssl-keyfile", "/key.pem"], env={"HF_TOKEN": "s3cret4", "TOKENIZERS_PARALLELISM": "1"}
    )
    shown = made.command.text()
    assert "s3cret" not in shown
    assert "/key.pem" in shown
    assert "TOKENIZERS_PARALLELISM=1" in shown
    assert "s3cret1" in made.command.argv


def test_a_secret_given_twice_is_not_printed_either() -> None:
    made = launch(extra=["--api-key", "s3cret1", "--api-key", "s3cret2"])
    assert "s3cret" not in repr(made.settings.notes)


def test_redact_leaves_token_counts_alone() -> None:
    words = ["--max-prefill-tokens", "512", "--tokenizer-path", "x", "--speculative-num-draft-tokens", "4"]
    assert redact(words) == words


@pytest.mark.parametrize(
    ("text", "value"),
    [("512", 512), ("-1", -1), ("64k", 64000), ("64Ki", 65536), ("1.5k", 1500), ("x", None), ("1.5", None)],
)
def test_numbers_are_read_as_sglang_reads_them(text: str, value: int | None) -> None:
    assert number(text) == value


def test_a_negative_number_is_a_value() -> None:
    assert parse(["--chunked-prefill-size", "-1", "--x"]) == [
        Flag("chunked-prefill-size", ("-1",), ("--chunked-prefill-size", "-1")),
        Flag("x", (), ("--x",)),
    ]


def test_the_state_folder() -> None:
    assert state_dir(1, {"FASTFILL_STATE_DIR": "/a", "XDG_STATE_HOME": "/b"}) == Path("/a")
    assert state_dir(1, {"XDG_STATE_HOME": "/b"}) == Path("/b/fastfill/1")
    assert state_dir(1, {"FASTFILL_STATE_DIR": "/a"}, Path("/c")) == Path("/c")
    assert state_dir(1, {}) == Path.home() / ".local" / "state" / "fastfill" / "1"
