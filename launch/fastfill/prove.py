"""``fastfill prove``: does the fast path fire on this running server, on every rank?"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from fastfill import output, unheard
from fastfill.errors import FastfillError, UsageError

if TYPE_CHECKING:
    from fastfill.proof.document import ProveDocument


def prove(
    context: typer.Context,
    url: Annotated[
        str, typer.Option(envvar="FASTFILL_URL", help="The server: http(s)://HOST:PORT, not a router.")
    ] = "",
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
        str | None,
        typer.Option(help="Who is asked: counters (always), log, trace; see above. [counters,log]", show_default=False),
    ] = None,
    container: Annotated[str, typer.Option(help="The server's container on this host: its log, its traces.")] = "",
    log: Annotated[Path | None, typer.Option(help="The server's output, or kernels.jsonl of its state folder.")] = None,
    journal: Annotated[str, typer.Option(help="The server's unit, to read its log from the journal.")] = "",
    profile_steps: Annotated[
        int, typer.Option(min=1, max=1000, help="Forward passes after which the profiler ends by itself.")
    ] = 32,
    profile_dir: Annotated[
        Path | None, typer.Option(help="Where the server writes its traces, if both see it there [/tmp].")
    ] = None,
    load: Annotated[
        int | None, typer.Option(min=0, max=256, help="Long prompts sent at once, for the coverage; 0 for none [8].")
    ] = None,
    light: Annotated[
        bool,
        typer.Option(
            "--light", help="For a busy server: one probe of --prompt-tokens at most, 1 % of its prompt tokens at most."
        ),
    ] = False,
    min_coverage: Annotated[
        float | None, typer.Option(min=0, max=1, help="Share of the attention work that must take the path.")
    ] = None,
    evidence: Annotated[
        Path | None, typer.Option(help="An empty folder for what was seen, to be judged again with --replay.")
    ] = None,
    replay: Annotated[
        Path | None, typer.Option(help="Judge such a folder again, with no server.", show_default=False)
    ] = None,
    manifest_sha256: Annotated[
        str, typer.Option(help="With --replay: the hash that prove printed; any other folder is refused.")
    ] = "",
    junit: Annotated[Path | None, typer.Option(help="Write the checks as JUnit XML to this file.")] = None,
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
        if junit is not None and not junit.absolute().parent.is_dir():
            raise UsageError(
                "there is no such folder for the JUnit file", where=str(junit), next_step="give another --junit"
            )
        from fastfill.proof.options import check

        check(unheard.given(context))
        if replay is not None:
            from fastfill.proof import run

            document = run.replay(replay, manifest_sha256)
        else:
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
                load,
                light,
                min_coverage,
                evidence,
            )
            from fastfill.proof import run

            document = run.live(wish)
        _junit(junit, document)
    except FastfillError as error:
        from fastfill.proof.document import error_document

        none = error_document(url or str(replay or ""), error, elapsed_s=time.monotonic() - start)
        with contextlib.suppress(FastfillError):
            _junit(junit, none)
        if as_json:
            _print(none)
            error.documented = True
        raise
    if as_json:
        _print(document)
    else:
        from fastfill.proof.report import show

        show(document)
    raise typer.Exit(document.exit_code)


def _junit(file: Path | None, document: ProveDocument) -> None:
    if file is not None:
        from fastfill.proof.junit import write

        write(file, document)


def _print(document: ProveDocument) -> None:
    output.document(document.model_dump(mode="json", by_alias=True))


class Wish(NamedTuple):
    """The options, as given."""

    url: str
    deadline: float = 120.0
    prompt_tokens: int | None = None
    attempts: int = 5
    api_key_file: Path | None = None
    admin_api_key_file: Path | None = None
    model_config: Path | None = None
    witness: str | None = None
    container: str = ""
    log: Path | None = None
    journal: str = ""
    profile_steps: int = 32
    profile_dir: Path | None = None
    load: int | None = None
    light: bool = False
    min_coverage: float | None = None
    evidence: Path | None = None
