"""fastfill's pages on SGLang's own HTTP server, behind its API key."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from typing import Any

from sglang_fastfill import ring, state
from sglang_fastfill.identity import version

LONGEST_BODY = 1 << 16
"""Bytes of an order to the kill switch."""
OURS = "fastfill-"
GUESSABLE = 16
"""A shorter start of a request id could be guessed, one character after the other."""
HIDDEN = "(hidden)"
USAGE = 'the body must be {"path": "on" | "off", "who": …, "why": …}'


def add(app: Any) -> None:
    """Add the routes to SGLang's FastAPI app.

    ``GET /fastfill/passes``: the last prefill passes of each rank. ``GET /fastfill/status``: what each rank found out
    about itself. ``GET`` and ``POST /fastfill/path``: the kill switch; to throw it takes the admin key where there is
    one. Pages that read files are no coroutines: FastAPI runs those in a thread, beside the requests that it serves.
    """
    from fastapi import Request

    place = state.folder()
    if place is None:
        return

    def passes(rid: str = "") -> Any:
        exact = len(rid) < GUESSABLE and not rid.startswith(OURS)
        ranks = ring.read(place, rid, exact=exact)
        for rank in ranks:
            for one in rank["passes"]:
                one["rids"] = shown(one["rids"], rid, exact=exact)
        return _answer({"schema": "fastfill.passes/1", "ranks": ranks})

    def status() -> Any:
        return _answer(
            {
                "schema": "fastfill.status/1",
                "version": version(),
                "path": state.read_path(place),
                "ranks": state.read_statuses(place),
            }
        )

    def path() -> Any:
        return _answer(state.read_path(place))

    async def throw(request: Request) -> Any:
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > LONGEST_BODY:
                return _answer({"error": f"the body is longer than {LONGEST_BODY} bytes"}, 413)
        try:
            order = json.loads(body)
            wanted = order["path"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return _answer({"error": USAGE}, 400)
        if wanted not in ("on", "off"):
            return _answer({"error": f'path must be "on" or "off", not {str(wanted)[:20]!r}'}, 400)
        try:
            return _answer(state.write_path(place, wanted, order.get("who", ""), order.get("why", "")))
        except OSError as error:
            return _answer({"error": f"the switch is where it was: {error}"}, 500)

    # With future annotations the local name Request is a string that FastAPI cannot look up.
    throw.__annotations__["request"] = Request
    app.add_api_route("/fastfill/passes", passes, methods=["GET"])
    app.add_api_route("/fastfill/status", status, methods=["GET"])
    app.add_api_route("/fastfill/path", path, methods=["GET"])
    app.add_api_route("/fastfill/path", _for_admins(throw), methods=["POST"])


def shown(rids: list[str], asked: str, *, exact: bool) -> list[str]:
    """The ids that whoever asked knows already, and the proofs' own; other clients' stay theirs.

    Who knows a request's id can abort it.
    """
    known = [rid == asked or rid.startswith(OURS) or (not exact and rid.startswith(asked)) for rid in rids]
    return [rid if told else HIDDEN for rid, told in zip(rids, known, strict=True)]


def _answer(value: Any, status: int = 200) -> Any:
    from fastapi import Response

    # FastAPI's own JSONResponse raises on a lone surrogate, which a client may send; escapes it is.
    return Response(json.dumps(value), status, media_type="application/json")


def _for_admins(endpoint: Callable[..., Any]) -> Callable[..., Any]:
    """Ask for SGLang's admin key where there is one, else for its API key: as /abort_request and /flush_cache do."""
    try:
        auth: Any = importlib.import_module("sglang.srt.utils.auth")
        level = auth.AuthLevel.ADMIN_OPTIONAL
    except (ImportError, AttributeError):
        return endpoint
    marked: Callable[..., Any] = auth.auth_level(level)(endpoint)
    return marked
