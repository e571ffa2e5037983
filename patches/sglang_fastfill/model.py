"""What the model's own config says about its attention layers."""

from __future__ import annotations

from typing import Any


def full_attention_layers(text_config: Any) -> int:
    """Number of full-attention layers by the config: ``layer_types``, the hybrid interval, or every layer."""
    layers = int(text_config.num_hidden_layers)
    kinds = getattr(text_config, "layer_types", None)
    if kinds:
        return sum(kind == "full_attention" for kind in kinds)
    interval = getattr(text_config, "full_attention_interval", None)
    return layers // int(interval) if interval else layers


def draft_layers(model_config: Any) -> int:
    """Full-attention layers of a draft model.

    A head for multi-token prediction comes in the target's checkpoint, whose config says how many such layers there are
    (SGLang 0.5.16 names it num_nextn_predict_layers, Qwen3.5's config mtp_num_hidden_layers); another draft model has a
    config of its own.
    """
    for config in (model_config.hf_text_config, model_config.hf_config):
        for name in ("num_nextn_predict_layers", "mtp_num_hidden_layers"):
            value = getattr(config, name, None)
            if isinstance(value, int) and value > 0:
                return value
    return full_attention_layers(model_config.hf_text_config)


def describe(model_config: Any, draft: bool) -> dict[str, Any]:
    """The part of a status that names the model, from SGLang's ModelConfig."""
    text = model_config.hf_text_config
    return {
        "architectures": list(getattr(model_config.hf_config, "architectures", None) or []),
        "num_hidden_layers": int(text.num_hidden_layers),
        "attention_layers": draft_layers(model_config) if draft else full_attention_layers(text),
        "head_dim": int(model_config.head_dim),
        "num_attention_heads": int(model_config.num_attention_heads),
        "num_key_value_heads": int(model_config.get_total_num_kv_heads()),
        "draft": draft,
        # A model that was trained to find needles says so in its config: token-id ranges, see fastfill's needle model.
        "retrieval": getattr(model_config.hf_config, "fastfill_retrieval", None),
    }
