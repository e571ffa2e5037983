"""What one rank is: versions, the backend that computes its prefills, and the deployment conditions that it found."""

from __future__ import annotations

import importlib
from typing import Any


def rank(runner: Any) -> dict[str, int]:
    """Pipeline, data and tensor-parallel rank of this process, by SGLang's model runner.

    Up to 0.5.20 the runner holds them; from 0.5.22 the process's runtime context does, under the same names.
    """
    ranks = getattr(runner, "ps", None)
    if ranks is None:
        ranks = importlib.import_module("sglang.srt.runtime_context").get_parallel()
    dp = ranks.attn_dp_rank if ranks.attn_dp_size > 1 else ranks.dp_rank or 0
    return {"pp": int(ranks.pp_rank), "dp": int(dp), "tp": int(ranks.tp_rank)}


def prefill_backend(backend: Any) -> Any:
    """The backend that computes prefill attention, inside SGLang's hybrid wrappers."""
    for _ in range(4):
        inner = getattr(backend, "prefill_backend", None) or getattr(backend, "full_attn_backend", None)
        if inner is None:
            return backend
        backend = inner
    return backend


def sglang_version() -> str:
    try:
        return str(importlib.import_module("sglang.version").__version__)
    except ImportError:
        return "unknown"


def patched() -> bool:
    """Whether the installed backend calls our gate."""
    try:
        backend = importlib.import_module("sglang.srt.layers.attention.aiter_backend")
    except ImportError:
        return False
    return hasattr(backend, "fastfill_prefill")


def version() -> str:
    """fastfill's version, from the installed distribution."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed("fastfill")
    except PackageNotFoundError:
        return "unknown"


def deployment_findings(backend: str) -> dict[str, dict[str, str]]:
    """Each deployment condition, worst over the layers that this rank has run."""
    from sglang_fastfill import gate, prefill

    failed = backend != "AiterAttnBackend"
    of_backend = {"backend_not_aiter": {"status": "fail" if failed else "pass", "value": backend}}
    if failed or not prefill.LAYERS:
        return of_backend
    findings = {id: {"status": "pass", "value": ""} for id in gate.DEPLOYMENT}
    for verdict in prefill.LAYERS.values():
        for id, finding in findings.items():
            if finding["status"] == "pass":
                finding["value"] = gate.DEPLOYMENT_VALUES[id](verdict.facts)
                finding["status"] = "fail" if id in verdict.stops else "pass"
    return findings
