"""Full-attention layers from the config.json of real models (their published values)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfill.errors import UsageError
from fastfill.proof.expected import attention_layers, calls_per_pass
from fastfill.proof.modelconfig import layers_from

QWEN35_397B = {
    "architectures": ["Qwen3_5MoeForConditionalGeneration"],
    "model_type": "qwen3_5_moe",
    "text_config": {
        "num_hidden_layers": 60,
        "full_attention_interval": 4,
        "head_dim": 256,
        "num_attention_heads": 32,
        "num_key_value_heads": 2,
        "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 15,
    },
    "vision_config": {"num_hidden_layers": 27, "depth": 27},
}
QWEN3_NEXT = {"num_hidden_layers": 48, "full_attention_interval": 4, "head_dim": 256}
QWEN3_8B = {"num_hidden_layers": 36, "head_dim": 128, "max_window_layers": 36, "use_sliding_window": False}
GEMMA3_27B = {
    "text_config": {
        "num_hidden_layers": 62,
        "layer_types": [("full_attention" if (i + 1) % 6 == 0 else "sliding_attention") for i in range(62)],
    }
}


@pytest.mark.parametrize(("config", "layers"), [(QWEN35_397B, 15), (QWEN3_NEXT, 12), (QWEN3_8B, 36), (GEMMA3_27B, 10)])
def test_published_models(config: dict[str, Any], layers: int) -> None:
    assert calls_per_pass(config) == layers


def test_interval_and_layer_types_agree_on_which_layers() -> None:
    by_interval = {"num_hidden_layers": 60, "full_attention_interval": 4}
    assert attention_layers(QWEN35_397B) == attention_layers(by_interval) == tuple(range(3, 60, 4))


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"num_hidden_layers": 0},
        {"num_hidden_layers": "60"},
        {"num_hidden_layers": True},
        {"num_hidden_layers": 4, "layer_types": ["full_attention"] * 3},
        {"num_hidden_layers": 4, "full_attention_interval": 0},
    ],
)
def test_a_config_that_cannot_be_counted(config: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        attention_layers(config)


@given(total=st.integers(1, 200), interval=st.integers(1, 12))
def test_intervals(total: int, interval: int) -> None:
    layers = attention_layers({"num_hidden_layers": total, "full_attention_interval": interval})
    assert len(layers) == total // interval and all((index + 1) % interval == 0 for index in layers)


def test_config_is_found_beside_the_model_or_where_the_operator_says(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(QWEN35_397B))
    assert layers_from(None, str(tmp_path)) == 15
    assert layers_from(tmp_path / "config.json", "") == layers_from(tmp_path, "org/model") == 15
    assert layers_from(None, "org/model-that-is-not-here") is None
    assert layers_from(None, "") is None


@pytest.mark.parametrize("text", ["{", "[]", "{}"])
def test_a_named_config_must_be_usable(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    assert layers_from(None, str(tmp_path)) is None
    with pytest.raises(UsageError):
        layers_from(tmp_path, "")
    with pytest.raises(UsageError):
        layers_from(tmp_path / "missing.json", "")
