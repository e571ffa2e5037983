"""The command line: one verb a module, each of which imports what it needs when it runs."""

from __future__ import annotations

import typer

from fastfill import (
    __version__,
    bench,
    explain,
    health,
    init,
    kernel,
    model,
    patch,
    path,
    pins,
    plan,
    preflight,
    profiles,
    prove,
    selfcheck,
    serve,
    supervise,
)
from fastfill.lab import commands as lab

app = typer.Typer(
    name="fastfill",
    help="Serve Qwen3.5-class models with SGLang on MI350X/MI355X, and prove that the fp8 head-dim-256 path fires.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fastfill {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Serve Qwen3.5-class models with SGLang on MI350X/MI355X, and prove that the fast path fires."""


app.add_typer(kernel.app, name="kernel")
app.add_typer(patch.app, name="patch")
app.command("preflight")(preflight.preflight)
app.add_typer(path.app, name="path")
app.add_typer(plan.app, name="plan")
app.command("prove")(prove.prove)
app.command("profiles")(profiles.profiles)
app.command("serve", context_settings={"allow_extra_args": True})(serve.serve)
app.add_typer(lab.app, name="lab")
app.command("explain")(explain.explain)
app.command("supervise", context_settings={"allow_extra_args": True})(supervise.supervise)
app.add_typer(pins.app, name="pins")
app.command("health")(health.health)
app.command("selfcheck")(selfcheck.selfcheck)
app.command("init")(init.init)
app.add_typer(model.app, name="model")
app.add_typer(bench.app, name="bench")
