"""Reads the live server's objects into the facts that the gate decides on."""

from __future__ import annotations

import importlib
import inspect
import logging
import os
from functools import lru_cache
from typing import Any

import torch

from sglang_fastfill import kernel_files
from sglang_fastfill.conditions import FLAG, NEAR_MISS_FLAGS, RIVAL_FLAG
from sglang_fastfill.gate import LayerFacts
from sglang_fastfill.state import truthy

logger = logging.getLogger(__name__)


def flag_on() -> bool:
    """Whether SGLANG_AITER_FMHA_FP8_ASM is on."""
    return truthy(os.environ.get(FLAG))


def near_misses() -> list[str]:
    """Names that look like the flag, are set, and do nothing."""
    return [name for name in NEAR_MISS_FLAGS if os.environ.get(name)]


def rival(backend_module: Any) -> str:
    """State of the rival flag: ``unset``; ``warning`` (set, and nothing reads it); ``active`` (set and read)."""
    if not truthy(os.environ.get(RIVAL_FLAG)):
        return "unset"
    try:
        source = inspect.getsource(backend_module)
    except (OSError, TypeError):
        return "warning"
    return "active" if RIVAL_FLAG in source else "warning"


@lru_cache(maxsize=1)
def believed_arch() -> str:
    """The architecture by which aiter dispatches, ``unknown`` when aiter cannot tell."""
    try:
        return str(importlib.import_module("aiter.jit.utils.chip_info").get_gfx())
    except Exception:  # aiter raises RuntimeError, KeyError and more when rocminfo disappoints it
        logger.warning("fastfill: aiter cannot tell the GPU architecture", exc_info=True)
        return "unknown"


@lru_cache(maxsize=1)
def device_arch() -> str:
    """What this rank's own device says, empty when there is none."""
    if not torch.version.hip or not torch.cuda.is_available():
        return ""
    name = str(torch.cuda.get_device_properties(torch.cuda.current_device()).gcnArchName)
    return name.split(":")[0]


def ck_enabled() -> bool:
    """aiter's own reading of ENABLE_CK where it has one, the environment's otherwise."""
    try:
        return bool(importlib.import_module("aiter.jit.core").ENABLE_CK)
    except (ImportError, AttributeError):
        return os.environ.get("ENABLE_CK", "1") != "0"


def server_args() -> Any:
    """SGLang's resolved arguments, None outside a server."""
    try:
        return importlib.import_module("sglang.srt.runtime_context").get_context().server_args
    except Exception:  # a context that was never set up raises its own error types
        return None


def context_parallel(args: Any) -> int:
    """Attention context-parallel size in prefill, 1 for none."""
    size = int(getattr(args, "attn_cp_size", 1) or 1)
    return size if size > 1 else 2 if getattr(args, "enable_prefill_cp", False) else 1


def _bidirectional(layer: Any) -> bool:
    kind = getattr(layer, "attn_type", None)
    return bool(layer.is_cross_attention) or str(getattr(kind, "value", kind) or "decoder") != "decoder"


def layer_facts(backend: Any, layer: Any, *, has_kv: bool, sinks: bool) -> LayerFacts:
    """Facts of one attention layer.

    Args:
        backend: The AiterAttnBackend that serves the layer.
        layer: Its RadixAttention.
        has_kv: The layer was called with k and v.
        sinks: The layer was called with attention sinks.
    """
    args = server_args()
    if misses := near_misses():
        logger.warning("fastfill: %s is set and does nothing; the flag's name is %s", ", ".join(misses), FLAG)
    rival_state = rival(inspect.getmodule(type(backend)))
    if rival_state == "warning":
        logger.warning("fastfill: %s is set, and nothing in this SGLang reads it", RIVAL_FLAG)
    return LayerFacts(
        backend=type(backend).__name__,
        nodes=int(getattr(args, "nnodes", 1) or 1),
        pipeline=int(getattr(args, "pp_size", 1) or 1),
        disaggregation=str(getattr(args, "disaggregation_mode", None) or "null"),
        flag=flag_on(),
        believed_arch=believed_arch(),
        device_arch=device_arch(),
        kernel=kernel_files.installed_state(),
        ck_enabled=ck_enabled(),
        qk_head_dim=int(layer.qk_head_dim),
        v_head_dim=int(layer.v_head_dim),
        q_heads=int(layer.tp_q_head_num),
        kv_heads=int(layer.tp_k_head_num),
        sliding_window=int(layer.sliding_window_size if layer.sliding_window_size is not None else -1),
        sinks=sinks,
        logit_cap=float(layer.logit_cap or 0.0),
        bidirectional=_bidirectional(layer),
        mla=bool(backend.use_mla),
        kv_dtype=str(backend.kv_cache_dtype).removeprefix("torch."),
        has_kv=has_kv,
        context_parallel=context_parallel(args),
        rival=rival_state == "active",
    )
