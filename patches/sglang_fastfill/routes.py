"""fastfill's pages on SGLang's own HTTP server, behind its API key."""

from __future__ import annotations

from typing import Any

from sglang_fastfill import state
from sglang_fastfill.witness import version


def add(app: Any) -> None:
    """Add the routes to SGLang's FastAPI app.

    ``GET /fastfill/passes``: the last prefill passes of each rank. ``GET /fastfill/status``: what each rank found out
    about itself. ``GET`` and ``POST /fastfill/path``: the kill switch.
    """
    from fastapi import Request
    from fastapi.responses import JSONResponse

    place = state.folder()
    if place is None:
        return

    async def passes(rid: str = "") -> Any:
        return JSONResponse({"schema": "fastfill.passes/1", "ranks": state.read_passes(place, rid)})

    async def status() -> Any:
        return JSONResponse(
            {
                "schema": "fastfill.status/1",
                "version": version(),
                "path": state.read_path(place),
                "ranks": state.read_statuses(place),
            }
        )

    async def path() -> Any:
        return JSONResponse(state.read_path(place))

    async def throw(request: Request) -> Any:
        try:
            body = await request.json()
            wanted = body["path"]
        except (ValueError, KeyError, TypeError):
            return JSONResponse({"error": 'the body must be {"path": "on" | "off", "who": …, "why": …}'}, 400)
        if wanted not in ("on", "off"):
            return JSONResponse({"error": f'path must be "on" or "off", not {wanted!r}'}, 400)
        return JSONResponse(state.write_path(place, wanted, str(body.get("who", "")), str(body.get("why", ""))))

    # With future annotations the local name Request is a string that FastAPI cannot look up.
    throw.__annotations__["request"] = Request
    app.add_api_route("/fastfill/passes", passes, methods=["GET"])
    app.add_api_route("/fastfill/status", status, methods=["GET"])
    app.add_api_route("/fastfill/path", path, methods=["GET"])
    app.add_api_route("/fastfill/path", throw, methods=["POST"])
