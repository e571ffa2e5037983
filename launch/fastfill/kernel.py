"""``fastfill kernel``: which head-dim-256 kernel an aiter holds, and whether it is a right one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fastfill.errors import ExitCode

app = typer.Typer(help="Look at the fp8 head-dim-256 kernel objects of an aiter.", no_args_is_help=True)


@app.callback()
def kernel() -> None:
    """Look at the fp8 head-dim-256 kernel objects of an aiter."""


@app.command()
def identify(
    path: Annotated[Path, typer.Argument(help="An aiter checkout, a site-packages folder, or one .co file.")],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Say which revision of the kernel is there, and whether aiter can reach it.

    Exit 0 for a right or unknown revision, 1 for a broken or missing kernel, 2 for bad input.
    """
    from fastfill import output
    from fastfill.kernels import installation
    from fastfill.kernels.judge import judge

    found = installation.read(path)
    identity = judge(found)
    if json:
        from fastfill.kernels.document import document

        output.document(document(found, identity).model_dump(by_alias=True))
    else:
        good = "not known to be bad" if identity.revision == "unknown" else "good"
        verdict = "broken" if identity.broken else "missing" if identity.missing else good
        output.data(f"revision {identity.revision}: {verdict}")
        for finding in identity.findings:
            output.data(f"  {finding.status:4}  {finding.id:15}  {finding.value}")
            if finding.fix and finding.status != "pass":
                output.data(f"        {'':15}  fix: {finding.fix}")
    if identity.broken or identity.missing:
        raise typer.Exit(int(ExitCode.CHECK_FAILED))
