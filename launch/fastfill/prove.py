"""``fastfill prove``: does the fast path fire on this running server, on every rank?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastfill import output
from fastfill.errors import FastfillError

if TYPE_CHECKING:
    from fastfill.proof.document import ProveDocument


def prove(
    url: Annotated[str, typer.Option(envvar="FASTFILL_URL", help="The server: http(s)://HOST:PORT, not a router.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document to stdout.")] = False,
    deadline: Annotated[
        float, typer.Option(min=1, help="Seconds for the whole proof; then NOT_EXERCISED (exit 3).")
    ] = 120.0,
    prompt_tokens: Annotated[
        int | None, typer.Option(min=2, help="Length of a probe in tokens [2048, or one chunk, or half the context].")
    ] = None,
    attempts: Annotated[
        int, typer.Option(min=1, max=50, help="How often to send a probe that other traffic spoils.")
    ] = 5,
    api_key_file: Annotated[
        Path | None, typer.Option(help="File with the server's API key; or set FASTFILL_API_KEY.")
    ] = None,
    model_config: Annotated[
        Path | None, typer.Option(help="config.json to count the layers from [the server's model folder, if here].")
    ] = None,
) -> None:
    """Send a fresh prompt to a running server and count, rank by rank, the calls of the fp8 head-dim-256 kernel.

    Then compare the answers of fast path and fallback.

    Verdicts: FIRED (exit 0); PARTIAL, NOT_FIRED, WRONG, INVALID (exit 1); NOT_EXERCISED (exit 3). Exit 2: the URL or
    key is wrong; exit 4: the server is not there or not ready.

    Example: fastfill prove --url http://localhost:30000 --json
    """
    import time

    start = time.monotonic()
    try:
        document = _prove(url, deadline, prompt_tokens, attempts, api_key_file, model_config)
    except FastfillError as error:
        if as_json:
            from fastfill.proof.document import error_document

            _print(error_document(url, error, elapsed_s=time.monotonic() - start))
        raise
    if as_json:
        _print(document)
    else:
        from fastfill.proof.report import show

        show(document)
    raise typer.Exit(document.exit_code)


def _print(document: ProveDocument) -> None:
    output.document(document.model_dump(mode="json", by_alias=True))


def _prove(
    url: str,
    seconds: float,
    prompt_tokens: int | None,
    attempts: int,
    api_key_file: Path | None,
    model_config: Path | None,
) -> ProveDocument:
    import time

    from fastfill.proof.address import api_key
    from fastfill.proof.document import document
    from fastfill.proof.gather import Plan, gather
    from fastfill.proof.modelconfig import layers_from
    from fastfill.proof.notes import next_step, notes
    from fastfill.proof.report import talker
    from fastfill.proof.server import Server
    from fastfill.proof.transport import Deadline, Transport
    from fastfill.proof.verdict import decide

    start = time.monotonic()
    talk = talker()
    with Transport(url, key=api_key(api_key_file), timeout_s=min(15.0, seconds)) as transport:
        plan = Plan(prompt_tokens, attempts, lambda folder: layers_from(model_config, folder))
        evidence = gather(Server(transport), plan, Deadline(seconds), talk)
    verdict = decide(evidence)
    return document(
        evidence,
        verdict,
        next_step=next_step(evidence, verdict),
        notes=notes(evidence),
        elapsed_s=time.monotonic() - start,
    )
