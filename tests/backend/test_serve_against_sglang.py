"""What `fastfill serve` says of SGLang's command line and memory sizing, against SGLang's own code."""

from __future__ import annotations

import argparse
import dataclasses
import types
from typing import Any

import pytest

from fastfill.serving import memory
from fastfill.serving.flags import ALIASES, KNOWN, canonical
from fastfill.serving.launch import Request, prepare
from fastfill.serving.profile import available, load

GPU_MIB = 288 * 1024


@pytest.fixture(scope="module")
def parser() -> argparse.ArgumentParser:
    """SGLang's own parser."""
    from sglang.srt.server_args import ServerArgs

    made = argparse.ArgumentParser()
    ServerArgs.add_cli_args(made)
    return made


@pytest.fixture(scope="module")
def destinations(parser: argparse.ArgumentParser) -> dict[str, str]:
    return {word[2:]: action.dest for action in parser._actions for word in action.option_strings if word[:2] == "--"}


@pytest.mark.parametrize("profile", available())
def test_sglang_reads_every_profile_as_it_is_meant(profile: str, parser: argparse.ArgumentParser) -> None:
    loaded = load(profile)
    request = Request(profile=loaded, options={"model-path": "org/model", "tp-size": "4"})
    made = prepare(request, environ={"HF_HOME": "/nowhere"}, python="python")
    read = vars(parser.parse_args(made.command.argv[3:]))
    for name, value in loaded.flags.items():
        assert read[name.replace("-", "_")] == value
    assert made.memory is not None
    assert read["mem_fraction_static"] == made.memory.fraction
    assert read["tp_size"] == 4


def test_every_flag_that_is_looked_at_exists(destinations: dict[str, str]) -> None:
    assert [name for name in KNOWN if name not in destinations] == []


def test_no_flag_of_sglang_is_mistaken_for_another(destinations: dict[str, str]) -> None:
    mistaken = {
        name: canonical(name)
        for name, dest in destinations.items()
        if canonical(name) != name and name not in ALIASES and destinations.get(canonical(name)) != dest
    }
    assert mistaken == {}


def test_an_abbreviation_means_what_argparse_takes_it_for(parser: argparse.ArgumentParser) -> None:
    for word, dest in (("--tp", "tp_size"), ("--chunked-prefill", "chunked_prefill_size")):
        assert vars(parser.parse_args(["--model-path", "x", word, "2"]))[dest] == 2
        assert canonical(word).replace("-", "_") == dest


def sglang_fraction(vision: dict[str, Any] | None = None, **settings: Any) -> float:
    """SGLang's automatic --mem-fraction-static on a GPU of 288 GiB, without a prefill graph, as on HIP."""
    from sglang.srt.model_executor.cuda_graph_config import Backend, CudaGraphConfig, PhaseConfig
    from sglang.srt.server_args import ServerArgs

    args = object.__new__(ServerArgs)
    for field in dataclasses.fields(ServerArgs):
        if field.default is not dataclasses.MISSING:
            setattr(args, field.name, field.default)
    config = types.SimpleNamespace(
        is_multimodal=vision is not None,
        hf_config=types.SimpleNamespace(vision_config=types.SimpleNamespace(**vision) if vision else None),
    )
    off = PhaseConfig(backend=Backend.DISABLED)
    given = {
        "model_path": "x",
        "device": "cuda",
        "cuda_graph_config": CudaGraphConfig(decode=PhaseConfig(backend=Backend.FULL), prefill=off),
        "get_model_config": lambda: config,
        "use_mla_backend": lambda: False,
        **settings,
    }
    for name, value in given.items():
        setattr(args, name, value)
    args._handle_gpu_memory_settings(GPU_MIB)
    return float(args.mem_fraction_static)


@pytest.mark.parametrize("chunk", [-1, 2048, 16384, 32768])
@pytest.mark.parametrize("tokens", [2048, 16384, 65536])
@pytest.mark.parametrize("tp", [1, 4, 8])
@pytest.mark.parametrize("vision", [None, {"depth": 27, "hidden_size": 1152}])
def test_the_sum_is_sglang_s_where_no_prompt_is_longer(
    chunk: int, tokens: int, tp: int, vision: dict[str, Any] | None
) -> None:
    single = memory.largest_pass(chunk=chunk, max_prefill_tokens=tokens, longest_prompt=tokens)
    ours = memory.plan(gpu_mib=GPU_MIB, single_pass=single, tp=tp, vision=vision).fraction
    theirs = sglang_fraction(vision, chunked_prefill_size=chunk, max_prefill_tokens=tokens, tp_size=tp)
    # Ours is rounded down, theirs to the nearest.
    assert ours == pytest.approx(theirs, abs=0.0015)
    assert ours <= theirs + 0.0005


def test_a_longer_prompt_is_what_sglang_does_not_count() -> None:
    single = memory.largest_pass(chunk=-1, max_prefill_tokens=16384, longest_prompt=65536)
    ours = memory.plan(gpu_mib=GPU_MIB, single_pass=single, tp=4).fraction
    assert sglang_fraction(chunked_prefill_size=-1, max_prefill_tokens=16384, tp_size=4) - ours > 0.2


def test_dp_attention_is_counted_as_sglang_does() -> None:
    single = memory.largest_pass(chunk=-1, max_prefill_tokens=65536, longest_prompt=65536)
    ours = memory.plan(gpu_mib=GPU_MIB, single_pass=single, tp=8, dp=8, dp_attention=True).fraction
    theirs = sglang_fraction(
        chunked_prefill_size=-1, max_prefill_tokens=65536, tp_size=8, dp_size=8, enable_dp_attention=True
    )
    assert ours == pytest.approx(theirs, abs=0.0015)
