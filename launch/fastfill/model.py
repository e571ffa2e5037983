"""``fastfill model``: the stack's checkpoint, fetched and verified."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from fastfill import output
from fastfill.errors import ExitCode, FastfillError, NotReadyError

app = typer.Typer(help="Fetch and verify the stack's checkpoint.", no_args_is_help=True, rich_markup_mode=None)
Stack = Annotated[str, typer.Option("--stack", help="A stack by name.")]
_DEFAULT = "sglang-0.5.16"


@app.command()
def fetch(
    into: Annotated[Path, typer.Option(help="The checkpoint's folder; a half-finished one is continued.")],
    stack: Stack = _DEFAULT,
    token_file: Annotated[
        Path | None, typer.Option(envvar="HF_TOKEN_PATH", help="File with the hub's token.", show_default=False)
    ] = None,
) -> None:
    """Download the stack's model at its pinned revision, then hash every file once. Needs huggingface_hub."""
    import importlib

    from fastfill.pinning import stack as stacks

    pinned = stacks.load(stack).model
    if not pinned.revision:
        raise FastfillError(
            "the model's revision is not resolved yet", where="docker/stacks", next_step="fastfill pins resolve"
        )
    try:
        hub = importlib.import_module("huggingface_hub")
    except ImportError:
        raise NotReadyError(
            "huggingface_hub is not installed here",
            where=sys.executable,
            next_step="pip install huggingface_hub (the images have it)",
        ) from None
    token = token_file.read_text(encoding="utf-8").strip() if token_file is not None else None
    try:
        hub.snapshot_download(
            pinned.repository, revision=pinned.revision, local_dir=into, token=token or None, endpoint=pinned.hub
        )
    except OSError as error:  # the hub's own errors are of this kind
        raise NotReadyError(
            f"the download broke off: {error}", where=str(into), next_step="run it again: it continues"
        ) from None
    _verify(into, pinned.revision, rehash=False)


@app.command()
def verify(
    folder: Annotated[Path, typer.Argument(help="The checkpoint's folder.")],
    stack: Stack = _DEFAULT,
    rehash: Annotated[bool, typer.Option("--rehash", help="Read every file again, not only what changed.")] = False,
) -> None:
    """Compare a checkpoint with what the hub named. Exit 1 if it is incomplete, damaged or of another revision.

    The first time every file is read; then only those whose size, time or inode changed.
    """
    from fastfill.pinning import stack as stacks

    _verify(folder, stacks.load(stack).model.revision, rehash=rehash)


def _verify(folder: Path, revision: str, *, rehash: bool) -> None:
    from fastfill import checkpoint, weights

    found = weights.verify(folder, revision, rehash=rehash, tell=_teller())
    problems = [*found.problems, *checkpoint.inspect(folder).problems]
    for problem in problems:
        output.data(f"FAIL  {problem}")
    known = "" if revision else "; the stack's revision is not resolved, so any was accepted"
    output.data(f"{folder}: {found.files} files, {found.hashed} of them hashed now, {len(problems)} problems{known}")
    if problems:
        raise typer.Exit(int(ExitCode.CHECK_FAILED))


def _teller() -> Callable[[int], None]:
    """Says how much has been hashed, every 10 GB on a terminal."""
    done = [0, 0]

    def tell(count: int) -> None:
        done[0] += count
        if done[0] // 10**10 > done[1]:
            done[1] = done[0] // 10**10
            if output.is_terminal():
                output.talk(f"hashed {done[0] / 1e9:.0f} GB")

    return tell
