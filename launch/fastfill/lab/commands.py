"""``fastfill lab``: the real SGLang server on a CPU, up and down."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastfill import environment, output
from fastfill.errors import NotReadyError
from fastfill.lab import container

if TYPE_CHECKING:
    from fastfill.lab.runs import Run
    from fastfill.lab.spec import LabSpec

app = typer.Typer(
    help="The lab: the real SGLang server, patched, on a CPU; only the GPU kernels are emulated.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
Port = Annotated[int, typer.Option(min=1, max=65535, help="On 127.0.0.1.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
_STACK = "Which SGLang: sglang-0.5.16 to sglang-0.5.23; with -unpatched: as its wheel has it."
_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": False}
app.command("run", context_settings=_PASS_ON)(container.run)
app.command("adopt", hidden=True)(container.adopt)
app.command("write-models", hidden=True)(container.write_models)


@app.command(context_settings=_PASS_ON)
def up(
    ctx: typer.Context,
    profile: Annotated[str, typer.Option(help="A launch profile, or the path of your own.")] = "long-context",
    model: Annotated[
        str,
        typer.Option(help="dense, hybrid, needle, dense-hd128, dense-gqa6, dense-scales, or a checkpoint's folder."),
    ] = "dense",
    port: Port = 30000,
    tp: Annotated[int, typer.Option(min=1, max=2, help="Tensor-parallel ranks.")] = 1,
    stack: Annotated[str, typer.Option(help=_STACK)] = "sglang-0.5.16",
    env: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE for the server; AITER_EMULATOR_FAULT=... asks for a fault.")
    ] = None,
    allow: Annotated[
        list[str] | None, typer.Option(help="Start although serve refuses this finding (its id, or all).")
    ] = None,
    state_dir: Annotated[Path | None, typer.Option(help="Default: a fresh folder.", show_default=False)] = None,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds to wait for the server.")] = 300.0,
    json: Json = False,
) -> None:
    """Start a server and wait until it answers; words after -- go to SGLang. Installs what it needs on first use.

    Example: fastfill lab up --model hybrid -- --chunked-prefill-size 512
    """
    from fastfill.lab import server
    from fastfill.lab.spec import LabSpec

    spec = LabSpec(
        profile=profile,
        model=model,
        port=port,
        tp=tp,
        stack=stack,
        env=environment.parse(env),
        flags=tuple(ctx.args),
        allow=tuple(allow or ()),
        state_dir=str(state_dir.absolute()) if state_dir else None,
    )
    spec.check()
    if server.running(spec) is None:
        _say_overrides(spec)
    run, started = server.ensure(spec, timeout)
    output.talk(f"lab: up in {started.seconds:.0f} s" if started else f"lab: already running on port {port}")
    _show(run, json)


@app.command()
def down(
    ctx: typer.Context,
    port: Port = 30000,
    all_: Annotated[bool, typer.Option("--all", help="Every lab server.")] = False,
) -> None:
    """Stop a server: exactly the processes that ``lab up`` started. Exit 0 also when there is none."""
    from fastfill.lab import runs, server
    from fastfill.unheard import Rule, given, refuse

    refuse(given(ctx), [Rule("--port", all_, "--all stops every server", "leave one of the two out")])
    chosen = runs.every() if all_ else [run for run in [runs.read(port)] if run is not None]
    if not chosen:
        output.talk("lab: no server is running" + ("" if all_ else f" on port {port}"))
    for run in chosen:
        server.stop(run)
        output.talk(f"lab: stopped the server on port {run.spec.port}; its log stays at {run.log}")


@app.command()
def status(json: Json = False) -> None:
    """List the lab's servers."""
    from fastfill.lab import runs

    servers = runs.every()
    if json:
        output.document({"schema": "fastfill.lab/1", "servers": [run.document() for run in servers]})
        return
    if not servers:
        output.talk("lab: no servers; start one: fastfill lab up")
    for run in servers:
        entry = run.document()
        memory = f"{entry['memory_mb'] / 1000:.1f} GB" if entry["memory_mb"] else "-"
        spec = run.spec
        output.data(
            f"{entry['url']}  {entry['state']}  pid {entry['pid']}  {memory}  "
            f"{spec.stack} {spec.profile} {spec.model} tp {spec.tp}  {run.log}"
        )


@app.command()
def logs(
    port: Port = 30000,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the server ends.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="Only the last ones; 0 for all.")] = 0,
) -> None:
    """Print a server's output."""
    from fastfill.lab import process, runs, server

    run = runs.read(port)
    log = runs.place_of(port) / "server.log"
    if not log.exists():
        raise NotReadyError(
            f"there is no log for port {port}", where=str(log), next_step=f"fastfill lab up --port {port}"
        )
    with log.open(encoding="utf-8", errors="replace") as file:
        text = file.read()
        output.data(server.tail(log, lines) if lines else text.rstrip("\n"))
        while follow and run is not None and process.alive(run.session):
            more = file.read()
            if more:
                output.data(more.rstrip("\n"))
            time.sleep(0.3)


@app.command(context_settings=_PASS_ON)
def python(
    ctx: typer.Context,
    stack: Annotated[str, typer.Option(help=_STACK)] = "sglang-0.5.16",
    tests: Annotated[bool, typer.Option("--tests", help="With pytest and hypothesis.")] = False,
) -> None:
    """Run the lab's Python, with SGLang, fastfill and the emulated aiter.

    Example: fastfill lab python --tests -- -m pytest tests/backend
    """
    import os

    from fastfill.lab import prepare

    interpreter, env = prepare.interpreter_of(stack, tests=tests)
    os.execve(interpreter, [str(interpreter), *ctx.args], env)  # noqa: S606


def _say_overrides(spec: LabSpec) -> None:
    from fastfill.lab import command

    for name, value, why in command.overrides(spec):
        output.talk(f"lab: over the profile: --{name}{'' if value is None else ' ' + value}  ({why})")


def _show(run: Run, json: bool) -> None:
    if json:
        output.document({"schema": "fastfill.lab/1", "servers": [run.document()]})
        return
    output.data(run.url)
