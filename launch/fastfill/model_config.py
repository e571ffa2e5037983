"""Reads a Hugging Face config.json as it is: the attention layers, by kind, and what a config leaves unsaid.

Nothing is guessed. A field that is missing, or an architecture that SGLang's source was not read for, is noted in
``ModelShape.missing`` under the condition that depends on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fastfill.explaining.tables import table
from fastfill.proof.expected import attention_layers, text_config

Kind = Literal["full", "sliding", "linear", "shared"]
_MOST_LAYERS = 10_000
_SLIDING = ("sliding_attention", "chunked_attention", "local_attention")


@dataclass(frozen=True, slots=True)
class Layers:
    """Layers of one kind.

    Attributes:
        kind: ``full``; ``sliding`` (a window or chunk); ``linear`` (no KV cache of its own kind); ``shared`` (full, but
            without k and v of its own).
        count: How many; 0 if the config does not say.
        qk_head_dim: Elements per q and k head; None if unknown.
        v_head_dim: Elements per v head; None if unknown.
        kv_heads: kv heads of the whole model; None if unknown.
    """

    kind: Kind
    count: int
    qk_head_dim: int | None
    v_head_dim: int | None
    kv_heads: int | None


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What decides about the fast path in a model.

    Attributes:
        architecture: The first of ``architectures``, "" if there is none.
        known: Whether SGLang's source was read for this architecture.
        layers: The layers by kind, full attention first.
        q_heads: Query heads of the whole model; None if unknown.
        window: The sliding window in tokens; None for none or unknown.
        sinks: Whether the layers have attention sinks; None if unknown.
        softcap: Soft cap of the attention logits; 0.0 for none.
        attention: ``decoder``, ``bidirectional``, ``encoder`` or ``cross``; "" if unknown.
        mla: Whether attention is multi-head latent.
        context: The longest sequence by the config, in tokens; None if unknown.
        quantised: Whether the checkpoint is quantised.
        fp8_kv: Whether ``--kv-cache-dtype auto`` means fp8 for this checkpoint.
        missing: What could not be known: condition id to the field or reason.
    """

    architecture: str
    known: bool
    layers: tuple[Layers, ...]
    q_heads: int | None
    window: int | None
    sinks: bool | None
    softcap: float
    attention: str
    mla: bool
    context: int | None
    quantised: bool
    fp8_kv: bool
    missing: Mapping[str, str]

    def count(self, kind: Kind) -> int:
        """How many layers there are of a kind."""
        return sum(group.count for group in self.layers if group.kind == kind)


def read(config: Mapping[str, Any], quantisation: Mapping[str, Any] | None = None) -> ModelShape:
    """Read a parsed config.json.

    Args:
        config: The document.
        quantisation: ``hf_quant_config.json`` where the checkpoint has one.

    Raises:
        ValueError: The config contradicts itself.
    """
    names = config.get("architectures")
    architecture = str(names[0]) if isinstance(names, list) and names else ""
    trait = _trait(architecture)
    inner = {**(trait or {}).get("defaults", {}), **_said(_language_part(config))}
    missing: dict[str, str] = {}
    if trait is None:
        why = f"architecture {architecture} is not known here" if architecture else "architectures is missing"
        missing |= dict.fromkeys(("attention_sinks", "cross_attention", "no_kv_input"), why)
    q_heads = _count(inner, "num_attention_heads")
    if q_heads is None:
        missing["gqa_ratio"] = "num_attention_heads is missing"
    mla = bool(trait["mla"]) if trait else "kv_lora_rank" in inner
    window = _count(inner, "sliding_window")
    layers = _layers(inner, trait, mla, q_heads, missing)
    dims = {(group.qk_head_dim, group.v_head_dim) for group in layers if group.kind != "linear"}
    if any(None in pair for pair in dims):
        fields = "qk_nope_head_dim, qk_rope_head_dim or v_head_dim" if mla else "head_dim (and hidden_size)"
        missing["head_dim_not_256"] = f"{fields} is missing"
    attention = str(trait["attention"]) if trait else ""
    if config.get("is_encoder_decoder") or inner.get("cross_attention_layers"):
        attention, _ = "cross", missing.pop("cross_attention", None)
    return ModelShape(
        architecture=architecture,
        known=trait is not None,
        layers=layers,
        q_heads=q_heads,
        window=window,
        sinks=_sinks(trait, inner),
        softcap=_softcap(inner, missing),
        attention=attention,
        mla=mla,
        context=_count(inner, "max_position_embeddings"),
        quantised=bool(config.get("quantization_config") or quantisation),
        fp8_kv=_fp8_kv(config, quantisation),
        missing=missing,
    )


def _language_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    inner, nested = text_config(config), config.get("text_config")
    return nested if inner is config and isinstance(nested, Mapping) and "num_hidden_layers" not in config else inner


def _trait(architecture: str) -> Mapping[str, Any] | None:
    for entry in table("architectures").values():
        if architecture in entry["names"]:
            return dict(entry)
    return None


def _said(inner: Mapping[str, Any]) -> dict[str, Any]:
    """The keys with a value of their kind: published configs write null for a default, broken ones anything."""
    said = {key: value for key, value in inner.items() if value is not None}
    for key in ("layer_types", "layers_block_type"):
        if not isinstance(said.get(key, []), list):
            del said[key]
    return said


def _count(inner: Mapping[str, Any], key: str) -> int | None:
    value = inner.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _layers(
    inner: dict[str, Any],
    trait: Mapping[str, Any] | None,
    mla: bool,
    q_heads: int | None,
    missing: dict[str, str],
) -> tuple[Layers, ...]:
    kinds = _kinds(inner, trait, missing)
    qk, v = _head_dims(inner, mla, q_heads)
    kv = _count(inner, "num_key_value_heads") or q_heads
    wide = _count(inner, "global_head_dim")
    found = []
    for kind in ("full", "shared", "sliding", "linear"):
        count = kinds.count(kind)
        if count or (kind == "full" and not kinds):
            other = bool(wide) and kind in ("full", "shared")
            heads = _count(inner, "num_global_key_value_heads") or kv if other else kv
            found.append(Layers(kind, count, wide if other else qk, wide if other else v, heads))
    return tuple(found)


def _head_dims(inner: Mapping[str, Any], mla: bool, q_heads: int | None) -> tuple[int | None, int | None]:
    if mla:
        nope, rope = _count(inner, "qk_nope_head_dim"), _count(inner, "qk_rope_head_dim")
        return (nope + rope if nope and rope else None), _count(inner, "v_head_dim")
    hidden = _count(inner, "hidden_size")
    qk = _count(inner, "head_dim") or (hidden // q_heads if hidden and q_heads else None)
    return qk, _count(inner, "v_head_dim") or qk


def _kinds(inner: dict[str, Any], trait: Mapping[str, Any] | None, missing: dict[str, str]) -> list[Kind]:
    total = _count(inner, "num_hidden_layers")
    if total is None:
        missing["sliding_window"] = "num_hidden_layers is missing, so which layers are full attention is not known"
        return []
    if total > _MOST_LAYERS:
        raise ValueError(f"num_hidden_layers is {total}")
    full = set(attention_layers(inner))
    types = inner.get("layer_types") or inner.get("layers_block_type") or []
    pattern = inner.get("hybrid_override_pattern")
    if isinstance(pattern, str):
        full = {index for index, kind in enumerate(pattern) if kind == "*"}
    kinds: list[Kind] = []
    for index in range(total):
        sliding = types[index] in _SLIDING if index < len(types) else False
        kinds.append("full" if index in full else "sliding" if sliding else "linear")
    window = trait["window"] if trait else "unknown"
    if window == "even" and _count(inner, "sliding_window"):
        kinds = ["sliding" if index % 2 == 0 else "full" for index in range(total)]
    elif window == "pattern" and not types:
        step = _count(inner, "sliding_window_pattern") or 6
        kinds = ["full" if (index + 1) % step == 0 else "sliding" for index in range(total)]
    elif window in ("types", "unknown") and not types and _has_window(inner):
        missing["sliding_window"] = "layer_types is missing, and sliding_window is set"
    first_shared = total - (_count(inner, "num_kv_shared_layers") or 0)
    return ["shared" if kind == "full" and index >= first_shared else kind for index, kind in enumerate(kinds)]


def _softcap(inner: Mapping[str, Any], missing: dict[str, str]) -> float:
    value = inner.get("attn_logit_softcapping", 0.0)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    missing["logit_softcap"] = f"attn_logit_softcapping is {value!r}"
    return 0.0


def _has_window(inner: Mapping[str, Any]) -> bool:
    return _count(inner, "sliding_window") is not None and bool(inner.get("use_sliding_window", True))


def _sinks(trait: Mapping[str, Any] | None, inner: Mapping[str, Any]) -> bool | None:
    if trait is None:
        return None
    if isinstance(trait["sinks"], list):
        return any(bool(inner.get(key)) for key in trait["sinks"])
    return bool(trait["sinks"] == "always")


def _fp8_kv(config: Mapping[str, Any], quantisation: Mapping[str, Any] | None) -> bool:
    """SGLang's ModelOpt configs alone carry ``kv_cache_quant_algo`` (0.5.16 mem_cache/kv_cache_dtype.py)."""
    given = config.get("quantization_config")
    inline = given if isinstance(given, Mapping) else {}
    if not quantisation and not str(inline.get("quant_method", "")).startswith("modelopt"):
        return False
    nested = (quantisation or {}).get("quantization")
    held = nested if isinstance(nested, Mapping) else inline
    scheme = held.get("kv_cache_scheme")
    if isinstance(scheme, Mapping):
        return scheme.get("type") == "float" and scheme.get("num_bits") == 8
    return str(held.get("kv_cache_quant_algo", "")).upper() == "FP8"
