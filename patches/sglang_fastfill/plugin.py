"""The entry point that SGLang's plugin framework calls, in its launcher and in every scheduler process.

Nothing reachable from here imports prometheus_client at import time: see ``meters``.
"""

from __future__ import annotations

import multiprocessing
from typing import Any


def register() -> None:
    """In the launcher: state folder, routes, hidden keys. In a scheduler: hook aiter and the model runner."""
    if multiprocessing.parent_process() is None:
        _in_launcher()
    else:
        _in_scheduler()


def _in_launcher() -> None:
    import importlib

    from sglang_fastfill import redact, routes, state, workers

    state.prepare()
    server: Any = importlib.import_module("sglang.srt.entrypoints.http_server")
    routes.add(server.app)
    redact.hide_in_text(importlib.import_module("sglang.srt.server_args").ServerArgs)
    redact.hide_in_log()
    redact.hide_in_pages(server.app)
    if hasattr(server, "uvicorn"):
        workers.offer(server.uvicorn)


def _in_scheduler() -> None:
    import importlib

    from sglang_fastfill import witness

    registry: Any = importlib.import_module("sglang.srt.plugins.hook_registry")
    around = registry.HookType.AROUND
    for target, kernel in witness.FUNCTIONS.items():
        if not witness.missing_from_aiter(target):
            registry.HookRegistry.register(target, witness.around_function(target, kernel), around)
    for target, kernel in witness.DISPATCH_POINTS.items():
        if not witness.missing_from_aiter(target):
            registry.HookRegistry.register(target, witness.around_dispatch(target, kernel), around)
    registry.HookRegistry.register(witness.RUNNER, witness.around_forward, around)
