"""How a server is, or will be, started: SGLang's flags as the decisions need them, from words or from a live server."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fastfill.errors import UsageError
from fastfill.serving.flags import number, parse


@dataclass(frozen=True, slots=True)
class Launch:
    """SGLang's flags; None where none was given.

    Attributes:
        tp: Tensor-parallel size.
        dp: Data-parallel size.
        dp_attention: Whether the data-parallel ranks share the tensor-parallel ones (``--enable-dp-attention``).
        cp: Attention context-parallel size in prefill, 1 for none.
        pp: Pipeline-parallel size.
        nodes: Number of nodes.
        disaggregation: ``--disaggregation-mode``, "" for none.
        backend: The prefill attention backend, "" for SGLang's choice.
        kv_dtype: ``--kv-cache-dtype``.
        page_size: Tokens a page of the KV cache.
        chunk: ``--chunked-prefill-size`` in tokens; 0 or less switches chunking off.
        chunk_resolved: Whether ``chunk`` is what the server resolved, DP attention's division included.
        max_prefill: ``--max-prefill-tokens``.
        mixed: Whether decode requests may be mixed into a prefill batch.
        radix: Whether the radix cache is on.
        speculative: The speculative algorithm, "" for none.
        context: ``--context-length`` in tokens.
        full_graph: Whether a full prefill graph is asked for.
    """

    tp: int = 1
    dp: int = 1
    dp_attention: bool = False
    cp: int = 1
    pp: int = 1
    nodes: int = 1
    disaggregation: str = ""
    backend: str = ""
    kv_dtype: str = "auto"
    page_size: int = 1
    chunk: int | None = None
    chunk_resolved: bool = False
    max_prefill: int = 16384
    mixed: bool = False
    radix: bool = True
    speculative: str = ""
    context: int | None = None
    full_graph: bool = False


def from_flags(words: list[str], *, tp: int | None, dp: int | None) -> Launch:
    """Read SGLang's flags as they would be written on its command line.

    Raises:
        UsageError: A number is none, or ``tp`` or ``dp`` is said twice, differently.
    """
    given = {flag.name: flag.values for flag in parse(words)}

    def text(name: str) -> str:
        values = given.get(name)
        if values is None:
            return ""
        if len(values) != 1:
            raise UsageError(f"--{name} takes one value", where="SGLang's flags", next_step=f"write --{name} VALUE")
        return values[0]

    def count(name: str) -> int | None:
        value = text(name)
        found = number(value) if value else None
        if value and found is None:
            raise UsageError(f"--{name} {value} is not a whole number", where="SGLang's flags")
        return found

    for name, option in (("tp-size", tp), ("dp-size", dp)):
        if option is not None and count(name) not in (None, option):
            raise UsageError(f"--{name[:2]} {option} and --{name} {count(name)} contradict each other")
    return Launch(
        tp=tp or count("tp-size") or 1,
        dp=dp or count("dp-size") or 1,
        dp_attention="enable-dp-attention" in given,
        cp=_context_parallel(count("attn-cp-size") or 1, "enable-prefill-cp" in given),
        pp=count("pp-size") or 1,
        nodes=count("nnodes") or 1,
        disaggregation=_none(text("disaggregation-mode")),
        backend=text("prefill-attention-backend") or text("attention-backend"),
        kv_dtype=text("kv-cache-dtype") or "auto",
        page_size=count("page-size") or 1,
        chunk=count("chunked-prefill-size"),
        max_prefill=count("max-prefill-tokens") or 16384,
        mixed="enable-mixed-chunk" in given,
        radix="disable-radix-cache" not in given,
        speculative=_none(text("speculative-algorithm")),
        context=count("context-length"),
        full_graph=text("cuda-graph-backend-prefill") == "full" or _graph_is_full(text("cuda-graph-config")),
    )


def from_server_info(info: Mapping[str, Any]) -> Launch:
    """Read what a live server answers at /server_info: every value is resolved already."""

    def value(name: str, default: Any, kind: Callable[[Any], Any]) -> Any:
        found = info.get(name)
        return default if found is None else kind(found)

    backend = value("prefill_attention_backend", "", str) or value("attention_backend", "", str)
    return Launch(
        tp=value("tp_size", 1, int),
        dp=value("dp_size", 1, int),
        dp_attention=value("enable_dp_attention", False, bool),
        cp=_context_parallel(value("attn_cp_size", 1, int), value("enable_prefill_cp", False, bool)),
        pp=value("pp_size", 1, int),
        nodes=value("nnodes", 1, int),
        disaggregation=_none(value("disaggregation_mode", "", str)),
        backend=backend,
        kv_dtype=value("kv_cache_dtype", "auto", str),
        page_size=value("page_size", 1, int),
        chunk=value("chunked_prefill_size", -1, int),
        chunk_resolved=True,
        max_prefill=value("max_prefill_tokens", 16384, int),
        mixed=value("enable_mixed_chunk", False, bool),
        radix=not value("disable_radix_cache", False, bool),
        speculative=_none(value("speculative_algorithm", "", str)),
        context=value("context_length", None, int),
        full_graph=_graph_is_full(info.get("cuda_graph_config")),
    )


def _none(text: str) -> str:
    return "" if text.lower() in ("", "null", "none") else text


def _context_parallel(size: int, switch: bool) -> int:
    return size if size > 1 else 2 if switch else 1


def _graph_is_full(config: Any) -> bool:
    if isinstance(config, str) and config:
        try:
            config = json.loads(config)
        except ValueError:
            raise UsageError("--cuda-graph-config is not JSON", where="SGLang's flags", detail=config) from None
    prefill = config.get("prefill") if isinstance(config, Mapping) else None
    return isinstance(prefill, Mapping) and prefill.get("backend") == "full"
