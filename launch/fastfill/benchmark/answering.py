"""From the words of ``fastfill bench accuracy`` to its document."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from fastfill.benchmark import accuracy, questions, scoring
from fastfill.benchmark.accuracy import lines
from fastfill.benchmark.arms import Arm
from fastfill.benchmark.connection import Connection
from fastfill.benchmark.ending import closing, orderly
from fastfill.benchmark.journal import Journal, alone, unwritable
from fastfill.benchmark.proven import Proof, prove
from fastfill.benchmark.questions import Question
from fastfill.benchmark.report import needed
from fastfill.benchmark.restart import RestartTarget
from fastfill.benchmark.servers import BF16, FP8, Servers
from fastfill.benchmark.setup import (
    PROOF_S,
    Access,
    Start,
    find_interpreter,
    from_anywhere,
    require_no_key,
    restarting,
    words_unheard,
)
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


def execute(wish: Wish, access: Access) -> dict[str, Any]:
    """Measure and judge; the document is also written to ``accuracy.json`` in the folder.

    Raises:
        FastfillError: The questions, a server or lm-eval cannot be used.
    """
    needed("scipy", "give the same command again")
    _check(wish)
    asked = questions.read(wish.data or questions.SHIPPED, wish.limit)
    python, env = find_interpreter(wish.python, "lm_eval")
    up = [Connection(url, access.key, access.admin) if url else None for url in (wish.url, wish.bf16_url)]
    # Before anything is written: an address where nobody is leaves no folder.
    for one in up:
        if one is not None:
            one.visit(lambda server: server.facts())
    started = None
    if wish.model or wish.lab:
        connection = Connection(f"http://127.0.0.1:{wish.port}", access.key, access.admin)
        start = Start(wish.model, wish.lab, wish.tp, wish.port, extra=wish.extra, keys=access.files)
        started, _ = restarting({"A": FP8, "B": BF16}, connection, wish.out, start)
    servers = {"fp8": wish.url or "", "bf16": wish.bf16_url or "", "here": wish.lab or wish.model or ""}
    try:
        with alone(wish.out), orderly():
            journal = Journal(wish.out, accuracy.plan(asked, margin=wish.margin, servers=servers))
            document = _measured(wish, up, started, asked, journal, python, env)
            (wish.out / "accuracy.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise unwritable(error, wish.out) from error
    return document


def _named(wish: Wish) -> dict[str, str | None]:
    return {"--url": wish.url, "--bf16-url": wish.bf16_url, "--model": wish.model, "--lab": wish.lab}


def _check(wish: Wish) -> None:
    if (wish.url or wish.bf16_url) and (wish.model or wish.lab):
        raise UsageError(
            "--url and --bf16-url name servers that are up, --model and --lab start others",
            where=", ".join(name for name, value in _named(wish).items() if value),
            next_step="give one kind of them",
        )
    if wish.model and wish.lab:
        raise UsageError("several servers are named", where="--model, --lab", next_step="give one of them")
    if not (wish.url or wish.model or wish.lab):
        raise UsageError("no server is named", where="--url", next_step="give --url, or --model to start servers here")
    if wish.url and wish.extra:
        raise words_unheard(wish.extra)
    require_no_key(wish.extra)


def _measured(
    wish: Wish,
    up: list[Connection | None],
    started: RestartTarget | None,
    asked: list[Question],
    journal: Journal,
    python: Path,
    env: dict[str, str],
) -> dict[str, Any]:
    from fastfill.path import caller

    place = Servers(up[0], up[1], started, caller(), journal)

    def proof(connection: Connection, arm: Arm) -> Proof:
        return prove(connection, arm, deadline_s=PROOF_S, prompt_tokens=wish.probe_tokens)

    def score(connection: Connection, folder: Path, context: int) -> list[bool]:
        model = str(connection.visit(lambda server: server.facts().model_path))
        tokenizer = from_anywhere(wish.tokenizer or model)
        harness = scoring.Harness(python, env, tokenizer, wish.concurrency, wish.answer_tokens)
        return scoring.score(
            harness, connection.url, asked, folder, model=model, context=context or 4096, key=connection.key
        )

    with closing(place.close):
        return accuracy.run(
            place.places(), asked, journal, margin=wish.margin, prove=proof, score=score, drain_s=DRAIN_S
        )
