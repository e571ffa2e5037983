"""The app that SGLang's further HTTP processes serve where ``--tokenizer-worker-num`` is above 1.

They are started afresh and import SGLang's app by name; no plugin is loaded in them. The launcher gives them this name
instead, so that they have fastfill's pages, and hide secrets, as it would itself.
"""

from __future__ import annotations

import importlib
from typing import Any

from sglang_fastfill import redact, routes

THEIRS = "sglang.srt.entrypoints.http_server:app"
OURS = "sglang_fastfill.workers:app"


def offer(uvicorn: Any) -> None:
    """Make ``uvicorn.run`` in this process start workers with our app where it would with SGLang's."""
    run = uvicorn.run
    if getattr(run, "offers_fastfill", False):
        return

    def ours(app: Any, *args: Any, **kwargs: Any) -> Any:
        return run(OURS if app == THEIRS else app, *args, **kwargs)

    ours.offers_fastfill = True  # type: ignore[attr-defined]
    uvicorn.run = ours


def _app() -> Any:
    app = importlib.import_module(THEIRS.partition(":")[0]).app
    routes.add(app)
    redact.hide_in_pages(app)
    return app


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(name)
    globals()["app"] = _app()
    return globals()["app"]
