"""From the words of ``fastfill bench accuracy`` to its document."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from fastfill.benchmark import accuracy, questions, scoring
from fastfill.benchmark.accuracy import lines
from fastfill.benchmark.arms import Arm
from fastfill.benchmark.ending import orderly
from fastfill.benchmark.journal import Journal, unwritable
from fastfill.benchmark.proven import Proof, prove
from fastfill.benchmark.report import needed
from fastfill.benchmark.servers import Servers, started_here
from fastfill.benchmark.setup import PROOF_S, find_interpreter
from fastfill.benchmark.target import Connection
from fastfill.errors import UsageError

__all__ = ["Wish", "execute", "lines"]
DRAIN_S = 120.0


class Wish(NamedTuple):
    """What the user asked for."""

    out: Path
    data: Path | None
    limit: int | None
    margin: float
    url: str | None
    bf16_url: str | None
    model: str | None
    lab: str | None
    tp: int
    port: int
    extra: tuple[str, ...]
    python: Path | None
    tokenizer: str | None
    concurrency: int
    answer_tokens: int
    probe_tokens: int | None


def execute(wish: Wish, *, key: str | None, admin: str | None) -> dict[str, Any]:
    """Measure and judge; the document is also written to ``accuracy.json`` in the folder.

    Raises:
        FastfillError: The questions, a server or lm-eval cannot be used.
    """
    from fastfill.path import caller

    if wish.url and (wish.model or wish.lab):
        raise UsageError(
            "--url names a server that is up, --model and --lab start others", next_step="give one of them"
        )
    needed("scipy")
    asked = questions.read(wish.data or questions.SHIPPED, wish.limit)
    servers = {"fp8": wish.url or "", "bf16": wish.bf16_url or "", "here": wish.lab or wish.model or ""}
    if not any(servers.values()):
        raise UsageError("no server is named", where="--url", next_step="give --url, or --model to start servers here")
    journal = Journal(wish.out, accuracy.plan(asked, margin=wish.margin, servers=servers))
    start = started_here(
        wish.out, model=wish.model, lab=wish.lab, tp=wish.tp, port=wish.port, extra=wish.extra, key=key
    )
    place = Servers(
        Connection(wish.url, key, admin) if wish.url else None,
        Connection(wish.bf16_url, key, admin) if wish.bf16_url else None,
        start[0] if start else None,
        caller(),
    )
    python, env = find_interpreter(wish.python)

    def proof(connection: Connection, arm: Arm) -> Proof:
        return prove(connection, arm, deadline_s=PROOF_S, prompt_tokens=wish.probe_tokens)

    def score(connection: Connection, folder: Path, context: int) -> list[bool]:
        model = str(connection.visit(lambda server: server.facts().model_path))
        harness = scoring.Harness(python, env, wish.tokenizer or model, wish.concurrency, wish.answer_tokens)
        return scoring.score(
            harness, connection.url, asked, folder, model=model, context=context or 4096, key=connection.key
        )

    with orderly():
        try:
            document = accuracy.run(
                place.places(), asked, journal, margin=wish.margin, prove=proof, score=score, drain_s=DRAIN_S
            )
        finally:
            place.close()
    try:
        (wish.out / "accuracy.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise unwritable(error, wish.out) from error
    return document
