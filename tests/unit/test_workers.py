"""Further HTTP processes get fastfill's pages: the launcher starts them with our app."""

from __future__ import annotations

import types
from typing import Any

from sglang_fastfill import workers


def test_the_launcher_hands_over_our_app_and_leaves_others_alone() -> None:
    asked: list[Any] = []
    uvicorn = types.SimpleNamespace(run=lambda app, **more: asked.append((app, more)))
    workers.offer(uvicorn)
    workers.offer(uvicorn)
    uvicorn.run(workers.THEIRS, workers=2)
    uvicorn.run("somebody:app")
    assert asked == [(workers.OURS, {"workers": 2}), ("somebody:app", {})]
