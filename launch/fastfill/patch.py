"""``fastfill patch``: put the fast path into an installed SGLang, look at it, take it out again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastfill import output
from fastfill.errors import ExitCode

if TYPE_CHECKING:
    from fastfill.patching.report import PatchReport

app = typer.Typer(
    help="Apply, check or reverse the patch series on an installed SGLang.", no_args_is_help=True, rich_markup_mode=None
)

Target = Annotated[
    Path | None,
    typer.Option(
        help="Where SGLang is: a site-packages folder, the sglang folder, a checkout, a virtual environment or an "
        "interpreter. Default: what this interpreter imports.",
        show_default=False,
    ),
]
Series = Annotated[
    Path | None,
    typer.Option(help="The series folder. Default: the shipped one for the version found.", show_default=False),
]
Python = Annotated[Path | None, typer.Option(help="Ask this interpreter which SGLang it imports.", show_default=False)]
Pristine = Annotated[
    Path | None,
    typer.Option(help="Unchanged SGLang files (folder or wheel) to compare a changed file with.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]

_SAYS = {
    "applied": "applied",
    "not_applied": "not applied; it can be: fastfill patch apply",
    "partial": "partly applied; fastfill patch apply finishes it, fastfill patch reverse undoes it",
    "foreign": "changed by someone else, or another build; fastfill patch check shows what differs",
    "built_in": "built into this SGLang; there is nothing to patch",
}


@app.command()
def apply(
    target: Target = None, series: Series = None, python: Python = None, pristine: Pristine = None, json: Json = False
) -> None:
    """Apply the series: all of it or nothing. Exit 0 also when it was applied already."""
    from fastfill.patching import run

    report = run.apply(target, series, python=python, pristine=pristine)
    _show(report, json, "applied" if report.changed else "already applied")


@app.command()
def check(
    target: Target = None, series: Series = None, python: Python = None, pristine: Pristine = None, json: Json = False
) -> None:
    """Exit 0 if the series is applied, 1 if it is not. Writes nothing."""
    from fastfill.patching import run

    report = run.check(target, series, python=python, pristine=pristine)
    _show(report, json, _SAYS[report.state])
    if report.state != "applied":
        raise typer.Exit(ExitCode.CHECK_FAILED)


@app.command()
def reverse(
    target: Target = None, series: Series = None, python: Python = None, pristine: Pristine = None, json: Json = False
) -> None:
    """Give every file back the bytes it had. Exit 0 also when nothing was applied."""
    from fastfill.patching import run

    report = run.reverse(target, series, python=python, pristine=pristine)
    _show(report, json, "reversed" if report.changed else "nothing to reverse")


@app.command()
def status(target: Target = None, series: Series = None, python: Python = None, json: Json = False) -> None:
    """Say what is there, patch by patch and file by file. Exit 0 whatever it is."""
    from fastfill.patching import run

    report = run.status(target, series, python=python)
    _show(report, json, _SAYS[report.state])


def _show(report: PatchReport, json: bool, says: str) -> None:
    if json:
        output.document(report.model_dump(mode="json", by_alias=True))
        return
    output.data(f"{report.target} (SGLang {report.version or 'of unknown version'}): {says}")
    for patch in report.patches:
        output.data(f"  patch  {patch.name}: {patch.description}")
    for file in report.files:
        carries = "not a known source" if file.applied is None else f"{file.applied} of {file.total} patches"
        output.data(f"  file   {file.path}: {carries}")
