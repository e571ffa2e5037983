"""``fastfill supervise``: what a container runs, so that a server that cannot go on ends, and can be started again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from fastfill.errors import UsageError


def supervise(
    ctx: typer.Context,
    state_dir: Annotated[Path | None, typer.Option(help="Default: FASTFILL_STATE_DIR.", show_default=False)] = None,
    stopped: Annotated[
        float, typer.Option(min=1, help="Seconds after which a stopped (SIGSTOP) process ends the server.")
    ] = 30.0,
) -> None:
    """Run a server as a child and end with its exit code. Words after -- are the command.

    SGLang's watchdogs are threads of the processes that they watch: they see a dead one and a slow one, but sleep along
    with a stopped one. aiter says once a process which kernel it loaded, in a line that log rotation loses: it is kept
    in kernels.jsonl in the state folder.

    Example: fastfill supervise -- fastfill serve --profile long-context --model ORG/NAME --tp 4
    """
    from fastfill.supervising import Child

    if not ctx.args:
        raise UsageError(
            "no command is given", where="the words after --", next_step="fastfill supervise -- fastfill serve ..."
        )
    place = state_dir or (Path(os.environ["FASTFILL_STATE_DIR"]) if os.environ.get("FASTFILL_STATE_DIR") else None)
    raise typer.Exit(Child(ctx.args, place, stopped).run())
