"""``fastfill health``: is the server serving. What a container's health check runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastfill import output
from fastfill.errors import ExitCode, FastfillError

if TYPE_CHECKING:
    from fastfill.proof.server import Server

RID_PREFIX = "fastfill-health-"
COUNTERS = (
    "sglang:realtime_tokens_total",
    "sglang:prompt_tokens_total",
    "sglang:generation_tokens_total",
    "fastfill:prefill_tokens_total",
)
"""They advance while requests are worked on; the first and the last also within a request that takes minutes."""
_FILE = "health.json"
_WAIT = "wait while the model loads (many minutes for a large one); look at the server's log, and at --url"
_LOG = "look at the server's log: docker compose logs server"


def health(
    url: Annotated[str, typer.Option(help="The server.")] = "http://127.0.0.1:30000",
    wait: Annotated[float, typer.Option(min=0.1, help="Seconds that a completion may take on an idle server.")] = 20.0,
    state_dir: Annotated[
        Path | None, typer.Option(help="Where the last reading is kept. Default: FASTFILL_STATE_DIR.")
    ] = None,
    api_key_file: Annotated[
        Path | None, typer.Option(help="The server's key. Default: FASTFILL_API_KEY_FILE, FASTFILL_API_KEY.")
    ] = None,
) -> None:
    """Exit 0 if token counters advanced since the last look, or a completion of one token succeeds; else 1.

    A busy server is not a sick one: under load the first token may take minutes, and then nothing is sent at all.
    """
    _listens(url)
    from fastfill.proof.address import api_key
    from fastfill.proof.server import Server
    from fastfill.proof.transport import Transport

    given = os.environ.get("FASTFILL_STATE_DIR")
    place = state_dir or (Path(given) if given else None)
    try:
        with Transport(url, key=api_key(api_key_file), timeout_s=10.0) as transport:
            says = _look(Server(transport), place and place / _FILE, wait)
    except FastfillError as error:
        # Docker knows 0 and 1 only.
        raise FastfillError(
            error.what, where=error.where, next_step=error.next_step, code=ExitCode.CHECK_FAILED, detail=error.detail
        ) from None
    output.data(says)


def _listens(url: str) -> None:
    """Fail early, and before anything heavy is imported: while a server starts this is asked every few seconds."""
    import socket
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        place = (parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))
        socket.create_connection(place, timeout=5).close()
    except (OSError, ValueError) as error:
        raise FastfillError(f"nothing listens there yet: {error}", where=url, next_step=_WAIT) from None


def _look(server: Server, kept: Path | None, wait: float) -> str:
    from fastfill.proof.transport import TimedOut

    now = _tokens(server)
    before = _last(kept)
    _keep(kept, now)
    if before is not None and now > before:
        return f"serving: {now - before:.0f} tokens since the last look"
    body = {
        "text": "ok",
        "rid": f"{RID_PREFIX}{os.urandom(6).hex()}",
        "sampling_params": {"max_new_tokens": 1, "temperature": 0, "ignore_eos": True},
    }
    try:
        answer = server.generate(body, timeout_s=wait)
    except TimedOut:
        later = _tokens(server)
        _keep(kept, later)
        if later > now:
            return f"serving: {later - now:.0f} tokens while a completion waited"
        server.abort(str(body["rid"]))
        raise FastfillError(
            f"no completion within {wait:.0f} s, and no token was worked on", where=server.url, next_step=_LOG
        ) from None
    if answer.refusal:
        raise FastfillError(f"a completion failed: {answer.refusal}", where=server.url, next_step=_LOG)
    return "serving: a completion succeeded"


def _tokens(server: Server) -> float:
    """Tokens of every kind, over all ranks; 0 where the server runs without metrics."""
    from prometheus_client.parser import text_string_to_metric_families

    reply = server.transport.get("/metrics", follow=True)
    if reply.status != 200:
        return 0.0
    try:
        families = list(text_string_to_metric_families(reply.text))
    except ValueError:
        return 0.0
    return sum(sample.value for family in families for sample in family.samples if sample.name in COUNTERS)


def _last(kept: Path | None) -> float | None:
    import json

    try:
        return float(json.loads(kept.read_text(encoding="utf-8"))["tokens"]) if kept is not None else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _keep(kept: Path | None, tokens: float) -> None:
    import json

    if kept is None:
        return
    try:
        part = kept.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps({"tokens": tokens}) + "\n", encoding="utf-8")
        part.replace(kept)
    except OSError:
        return
