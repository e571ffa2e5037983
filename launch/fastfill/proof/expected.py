"""How many fast-path calls one prefill pass must make, from a model's config.json alone.

Facts: SGLang calls attention once a full-attention layer and pass. Qwen3-Next and Qwen3.5 interleave linear layers and
say so by ``layer_types`` or ``full_attention_interval`` (layer i is full when (i + 1) is a multiple of it); multimodal
configs nest the language model's under ``text_config``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_NESTED = ("text_config", "llm_config", "language_config")
_FULL = ("full_attention", "attention")


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model's part of a config: the nested one if there is one, else the config itself."""
    for name in _NESTED:
        nested = config.get(name)
        if isinstance(nested, Mapping) and "num_hidden_layers" in nested:
            return nested
    return config


def attention_layers(config: Mapping[str, Any]) -> tuple[int, ...]:
    """The indices of the full-attention layers.

    Args:
        config: A parsed ``config.json``.

    Raises:
        ValueError: The config names no number of layers, or contradicts itself.
    """
    inner = text_config(config)
    total = inner.get("num_hidden_layers")
    if not isinstance(total, int) or isinstance(total, bool) or total < 1:
        raise ValueError("config has no num_hidden_layers")
    kinds = inner.get("layer_types") or inner.get("layers_block_type")
    if kinds is not None:
        if len(kinds) != total:
            raise ValueError(f"config lists {len(kinds)} layer types for {total} layers")
        return tuple(index for index, kind in enumerate(kinds) if kind in _FULL)
    interval = inner.get("full_attention_interval")
    if interval is not None:
        if not isinstance(interval, int) or interval < 1:
            raise ValueError(f"full_attention_interval is {interval!r}")
        return tuple(index for index in range(total) if (index + 1) % interval == 0)
    return tuple(range(total))


def calls_per_pass(config: Mapping[str, Any]) -> int:
    """Full-attention layers of the whole model: the calls of a rank without pipeline parallelism."""
    return len(attention_layers(config))
