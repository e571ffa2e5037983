"""The reader of config.json: published values as they are, and nothing guessed about the rest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfill.explaining.tables import table
from fastfill.model_config import read
from fastfill.proof.expected import attention_layers

CONFIGS = Path(__file__).parent.parent / "data/configs"
PUBLISHED = [
    # name, q heads, kv heads and head dims of the full-attention layers, layers: full, sliding, linear
    ("qwen3.5-397b-a17b", 32, 2, 256, 256, (15, 0, 45)),
    ("qwen3.5-397b-a17b-layer-types", 32, 2, 256, 256, (15, 0, 45)),
    ("qwen3.8-27b", 24, 4, 256, 256, (16, 0, 48)),
    ("qwen3-32b", 64, 8, 128, 128, (64, 0, 0)),
    ("gemma-2-9b", 16, 8, 256, 256, (21, 21, 0)),
    ("gemma-3-27b", 32, 16, 128, 128, (10, 52, 0)),
    ("gemma-3-4b", 8, 4, 256, 256, (5, 29, 0)),
    ("gpt-oss-120b", 64, 8, 64, 64, (18, 18, 0)),
    ("deepseek-v3", 128, 128, 192, 128, (61, 0, 0)),
    ("glm-4.5", 96, 8, 128, 128, (92, 0, 0)),
    ("llama-3.1-8b", 32, 8, 128, 128, (32, 0, 0)),
]


def config(name: str) -> dict[str, Any]:
    """One of the recorded configs."""
    found = json.loads((CONFIGS / f"{name}.json").read_text())
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(("name", "q_heads", "kv_heads", "qk", "v", "layers"), PUBLISHED, ids=lambda value: str(value))
def test_published_configs(name: str, q_heads: int, kv_heads: int, qk: int, v: int, layers: tuple[int, ...]) -> None:
    shape = read(config(name))
    full = next(group for group in shape.layers if group.kind == "full")
    assert (shape.q_heads, full.kv_heads, full.qk_head_dim, full.v_head_dim) == (q_heads, kv_heads, qk, v)
    assert (shape.count("full"), shape.count("sliding"), shape.count("linear")) == layers
    assert shape.known
    assert not shape.missing


def test_traits_that_only_some_have() -> None:
    shapes = {name: read(config(name)) for name, *_ in PUBLISHED}
    assert {name for name, shape in shapes.items() if shape.mla} == {"deepseek-v3"}
    assert {name for name, shape in shapes.items() if shape.sinks} == {"gpt-oss-120b"}
    assert {name: shape.softcap for name, shape in shapes.items() if shape.softcap} == {"gemma-2-9b": 50.0}
    assert {name for name, shape in shapes.items() if shape.attention != "decoder"} == {"gemma-3-27b", "gemma-3-4b"}
    assert {name for name, shape in shapes.items() if shape.quantised} == {"deepseek-v3"}


@pytest.mark.parametrize("name", ["qwen3.5-397b-a17b", "qwen3.8-27b", "qwen3-32b", "gpt-oss-120b", "made-linear"])
def test_prove_and_explain_count_the_same_layers(name: str) -> None:
    assert read(config(name)).count("full") == len(attention_layers(config(name)))


def test_each_architecture_is_in_one_row() -> None:
    names = [name for row in table("architectures").values() for name in row["names"]]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("change", "dims"),
    [
        ({"head_dim": None, "hidden_size": 2048, "num_attention_heads": 8}, (256, 256)),
        ({"head_dim": 256, "v_head_dim": 128}, (256, 128)),
        ({"head_dim": None, "hidden_size": None}, (None, None)),
        ({"head_dim": "256", "hidden_size": None}, (None, None)),
        ({"head_dim": True, "hidden_size": None}, (None, None)),
    ],
)
def test_head_dims(change: dict[str, Any], dims: tuple[int | None, int | None]) -> None:
    shape = read({**config("made-dense"), **change})
    assert (shape.layers[0].qk_head_dim, shape.layers[0].v_head_dim) == dims
    assert ("head_dim_not_256" in shape.missing) == (None in dims)


def test_kv_heads_that_are_left_out_are_as_many_as_q_heads() -> None:
    assert read({**config("made-dense"), "num_key_value_heads": None}).layers[0].kv_heads == 8


def test_a_nested_config_without_layers_is_still_the_one_that_is_read() -> None:
    shape = read({"architectures": ["Qwen3_5ForConditionalGeneration"], "text_config": {"head_dim": 256}})
    assert shape.layers[0].qk_head_dim == 256
    assert "num_hidden_layers is missing" in shape.missing["sliding_window"]


def test_an_encoder_decoder_has_cross_attention_whatever_its_architecture() -> None:
    assert read({**config("made-unknown-architecture"), "is_encoder_decoder": True}).attention == "cross"


def test_a_window_that_is_switched_off_is_none() -> None:
    assert not read({**config("made-sliding-unknown"), "use_sliding_window": False}).missing.get("sliding_window")


@pytest.mark.parametrize(
    ("inline", "extra", "fp8"),
    [
        ({"quant_method": "modelopt_fp8", "kv_cache_quant_algo": "FP8"}, None, True),
        ({"quant_method": "modelopt", "kv_cache_scheme": {"type": "float", "num_bits": 8}}, None, True),
        ({"quant_method": "modelopt", "kv_cache_scheme": {"type": "float", "num_bits": 4}}, None, False),
        ({"quant_method": "quark", "kv_cache_quant_algo": "FP8"}, None, False),
        (None, {"quantization": {"kv_cache_quant_algo": "FP8"}}, True),
        (None, {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": None}}, False),
    ],
)
def test_kv_dtype_auto(inline: dict[str, Any] | None, extra: dict[str, Any] | None, fp8: bool) -> None:
    shape = read({**config("made-dense"), "quantization_config": inline}, extra)
    assert (shape.fp8_kv, shape.quantised) == (fp8, True)


KEYS = sorted(
    {
        key
        for path in CONFIGS.glob("*.json")
        if path.stem not in ("made-not-json", "made-list")
        for key in config(path.stem)
    }
    | {key for name in ("qwen3.5-397b-a17b", "gemma-3-27b") for key in config(name)["text_config"]}
    | {"hybrid_override_pattern", "num_kv_shared_layers", "global_head_dim", "cross_attention_layers", "v_head_dim"}
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 300)
    | st.just(10**12)
    | st.floats(allow_nan=False)
    | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=8,
)
ARCHITECTURES = st.sampled_from([name for row in table("architectures").values() for name in row["names"]])


@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=8),
    st.none() | ARCHITECTURES,
    st.none() | st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=8),
)
def test_no_config_breaks_the_reader(found: dict[str, Any], name: str | None, nested: dict[str, Any] | None) -> None:
    if name is not None:
        found = {**found, "architectures": [name]}
    if nested is not None:
        found = {**found, "text_config": nested}
    try:
        shape = read(found)
    except ValueError as error:
        assert str(error)
    else:
        assert shape.layers
