"""``fastfill explain``: will the fast path fire for this model, release and set of flags, and if not, why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastfill import environment
from fastfill.errors import ExitCode, UsageError
from fastfill.unheard import Rule, given, refuse

if TYPE_CHECKING:
    from fastfill.explaining.facts import Facts

EXITS = {"fires": ExitCode.OK, "conditional": ExitCode.OK, "unknown": ExitCode.INCONCLUSIVE}


def explain(
    context: typer.Context,
    model: Annotated[str, typer.Option("--model", help="A checkpoint's folder, a config.json, or a cached name.")] = "",
    tp: Annotated[int | None, typer.Option("--tp", min=1, help="Tensor-parallel size.")] = None,
    dp: Annotated[int | None, typer.Option("--dp", min=1, help="Data-parallel size.")] = None,
    sglang: Annotated[str, typer.Option("--sglang", help="A release as PyPI has it, unpatched: 0.5.20.")] = "",
    stack: Annotated[str, typer.Option("--stack", help="One of our stacks [sglang-0.5.16].")] = "",
    aiter: Annotated[str, typer.Option("--aiter", help="aiter's folder, commit or tag [the stack's pin].")] = "",
    env: Annotated[list[str] | None, typer.Option("--env", help="A variable of the server: K=V. Repeatable.")] = None,
    url: Annotated[str, typer.Option("--url", help="Read a live server instead of flags.")] = "",
    api_key_file: Annotated[
        Path | None, typer.Option(help="File with the server's API key; or FASTFILL_API_KEY.")
    ] = None,
    prompt: Annotated[
        list[int] | None, typer.Option("--prompt", min=1, help="Prompt length for reach, in tokens.")
    ] = None,
    gpu_memory: Annotated[int, typer.Option("--gpu-memory", min=1, help="Memory of one GPU in GiB.")] = 288,
    gpu_arch: Annotated[str, typer.Option("--gpu-arch", help="The GPU's ISA.")] = "gfx950",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    flags: Annotated[
        list[str] | None, typer.Argument(help="After --: SGLang's flags.", metavar="-- [FLAGS]...")
    ] = None,
) -> None:
    """Decide every condition of SGLang's gate and of aiter's before anything is started.

    Exit 0 when the path fires (for some requests at least), 1 when it does not, crashes or is wrong, 3 when that cannot
    be told.

    Example: fastfill explain --model DIR --tp 4 --env SGLANG_AITER_FMHA_FP8_ASM=1 -- --kv-cache-dtype fp8_e4m3
    """
    from fastfill import output
    from fastfill.explaining import text, verdict

    if sglang and stack:
        raise UsageError(
            "--sglang names an unpatched release and --stack a patched one",
            where="--sglang, --stack",
            next_step="give one of them",
        )
    refuse(given(context), [Rule("--api-key-file", not url, "no server is asked", "give --url too")])
    variables = environment.parse(env)
    memory = gpu_memory << 10
    if url:
        if flags or sglang or stack or tp or dp:
            raise UsageError(
                "a live server tells its own release and flags", where="--url", next_step="give --url without them"
            )
        facts = _live(url, api_key_file, model, aiter, variables if env else None, memory, gpu_arch)
    elif model:
        facts = _offline(model, flags or [], tp, dp, sglang, stack, aiter, variables, memory, gpu_arch)
    else:
        raise UsageError("there is nothing to explain", where="--model", next_step="give --model DIR or --url URL")
    found = verdict.explain(facts, tuple(prompt or ()))
    if json:
        from fastfill.explaining.document import document

        output.document(document(found).model_dump(by_alias=True))
    else:
        for line in text.lines(found, output.columns()):
            output.data(line)
    raise typer.Exit(int(EXITS.get(found.verdict, ExitCode.CHECK_FAILED)))


def _offline(
    model: str,
    flags: list[str],
    tp: int | None,
    dp: int | None,
    sglang: str,
    stack: str,
    aiter: str,
    env: dict[str, str],
    memory: int,
    gpu: str,
) -> Facts:
    import os

    from fastfill import output
    from fastfill.explaining import aiter as aiter_side
    from fastfill.explaining import launch, releases, scales, source
    from fastfill.explaining.facts import Facts
    from fastfill.explaining.scheduler import schedule
    from fastfill.serving import arguments

    release = releases.release(sglang) if sglang else releases.stack(stack or releases.stacks()[0])
    if unchecked := arguments.unchecked(release.sglang):
        output.talk(unchecked)
    arguments.require(flags, release.sglang, "SGLang's flags")
    found = source.model(model, os.environ)
    asked = launch.from_flags(flags, tp=tp, dp=dp)
    return Facts(
        release=release,
        model=found.shape,
        layers=found.shape.layers[0],
        launch=asked,
        schedule=schedule(asked, memory, found.shape.context),
        aiter=aiter_side.of(aiter or release.aiter),
        scales=scales.read(found.folder, found.shape, release.scale_names),
        env=env,
        gpu=gpu,
    )


def _live(
    url: str, key: Path | None, model: str, aiter: str, env: dict[str, str] | None, memory: int, gpu: str
) -> Facts:
    import os

    from fastfill.explaining import aiter as aiter_side
    from fastfill.explaining import live, scales, source
    from fastfill.explaining.facts import Facts
    from fastfill.explaining.scheduler import schedule

    server = live.read(url, key)
    try:
        found = source.model(model or server.model, os.environ)
    except UsageError:
        if model:
            raise
        why = f"the server's model, {server.model}, is not on this machine: give --model"
        found = source.Source(source.unreadable(why), None)
    told = None if server.env is None and env is None else {**(server.env or {}), **(env or {})}
    return Facts(
        release=server.release,
        model=found.shape,
        layers=found.shape.layers[0],
        launch=server.launch,
        schedule=schedule(server.launch, memory, found.shape.context),
        aiter=aiter_side.of(aiter),
        scales=scales.read(found.folder, found.shape, server.release.scale_names),
        env=told,
        gpu=gpu,
        live=server.gate,
        operator_off=server.operator_off,
    )
