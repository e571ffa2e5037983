"""``fastfill prove``: does the fast path fire on this running server, on every rank?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

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
    admin_api_key_file: Annotated[
        Path | None, typer.Option(help="File with the admin key, where the server has one: to profile and to abort.")
    ] = None,
    model_config: Annotated[
        Path | None, typer.Option(help="config.json to count the layers from [the server's model folder, if here].")
    ] = None,
    witness: Annotated[
        str, typer.Option(help="Who is asked: counters (always), log, trace; see above.")
    ] = "counters,log",
    container: Annotated[str, typer.Option(help="The server's container on this host: its log, its traces.")] = "",
    log: Annotated[Path | None, typer.Option(help="The server's output, or kernels.jsonl of its state folder.")] = None,
    journal: Annotated[str, typer.Option(help="The server's unit, to read its log from the journal.")] = "",
    profile_steps: Annotated[
        int, typer.Option(min=1, max=1000, help="Forward passes after which the profiler ends by itself.")
    ] = 32,
    profile_dir: Annotated[
        Path | None, typer.Option(help="Where the server writes its traces, if both see it there [/tmp].")
    ] = None,
) -> None:
    """Send a fresh prompt to a running server and count, rank by rank, the calls of the fp8 head-dim-256 kernel.

    Then compare the answers of fast path and fallback.

    Verdicts: FIRED (exit 0); PARTIAL, NOT_FIRED, DISAGREE, WRONG, INVALID (exit 1); NOT_EXERCISED (exit 3). Exit 2: the
    URL or key is wrong; exit 4: the server is not there or not ready.

    \b
    witness    can prove                             cannot
    counters   which kernel each pass of the probe   that our plugin tells the truth
               reached, on each rank
    log        that each process loaded the kernel   which request used it; says nothing where the
               once (aiter's LoadKernel line)        log is rotated, hidden, torn or another's
    trace      that the GPU ran the kernel, how      which request used it: the ring tells
               often, on each rank (torch profiler)

    Example: fastfill prove --url http://localhost:30000 --json
    """
    import time

    start = time.monotonic()
    try:
        wish = Wish(
            url,
            deadline,
            prompt_tokens,
            attempts,
            api_key_file,
            admin_api_key_file,
            model_config,
            witness,
            container,
            log,
            journal,
            profile_steps,
            profile_dir,
        )
        document = _prove(wish)
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


class Wish(NamedTuple):
    """The options, as given."""

    url: str
    deadline: float
    prompt_tokens: int | None
    attempts: int
    api_key_file: Path | None
    admin_api_key_file: Path | None
    model_config: Path | None
    witness: str
    container: str
    log: Path | None
    journal: str
    profile_steps: int
    profile_dir: Path | None


def _prove(wish: Wish) -> ProveDocument:
    import time

    from fastfill.proof.address import admin_key, api_key
    from fastfill.proof.document import document
    from fastfill.proof.gather import gather
    from fastfill.proof.notes import next_step, notes
    from fastfill.proof.options import plan
    from fastfill.proof.report import talker
    from fastfill.proof.server import Server
    from fastfill.proof.transport import Deadline, Transport
    from fastfill.proof.verdict import decide

    start = time.monotonic()
    talk = talker()
    made = plan(wish)
    with Transport(wish.url, key=api_key(wish.api_key_file), timeout_s=min(15.0, wish.deadline)) as transport:
        server = Server(transport, admin_key=admin_key(wish.admin_api_key_file))
        evidence = gather(server, made, Deadline(wish.deadline), talk)
    verdict = decide(evidence)
    return document(
        evidence,
        verdict,
        next_step=next_step(evidence, verdict),
        notes=notes(evidence),
        elapsed_s=time.monotonic() - start,
    )
