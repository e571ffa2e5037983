"""``fastfill lab run`` and ``adopt``: the lab in the foreground, and in an image whose environment is there already."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from fastfill import environment
from fastfill.errors import UsageError

_KEY_FILES = ("FASTFILL_API_KEY_FILE", "FASTFILL_ADMIN_API_KEY_FILE")
"""Names of files; the keys themselves are in no variable."""


def run(
    ctx: typer.Context,
    profile: Annotated[str, typer.Option(help="A launch profile, or the path of your own.")] = "long-context",
    model: Annotated[
        str, typer.Option(help="dense, hybrid, dense-hd128, dense-gqa6, dense-scales, or a checkpoint's folder.")
    ] = "dense",
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535)] = 30000,
    tp: Annotated[int, typer.Option(min=1, max=2, help="Tensor-parallel ranks.")] = 1,
    env: Annotated[list[str] | None, typer.Option(help="NAME=VALUE for the server.")] = None,
    allow: Annotated[list[str] | None, typer.Option(help="Start although serve refuses this finding.")] = None,
    state_dir: Annotated[
        Path | None, typer.Option(help="Default: FASTFILL_STATE_DIR, else a fresh folder.", show_default=False)
    ] = None,
) -> None:
    """Run a lab server in the foreground, as the lab's container does. Words after -- go to SGLang."""
    from fastfill.lab import command, prepare, runs
    from fastfill.lab.spec import LabSpec

    given = str(state_dir) if state_dir else os.environ.get("FASTFILL_STATE_DIR")
    spec = LabSpec(
        profile=profile,
        model=model,
        host=host,
        port=port,
        tp=tp,
        env=environment.parse(env),
        flags=tuple(ctx.args),
        allow=tuple(allow or ()),
        state_dir=given,
    )
    spec.check()
    paths = prepare.paths(spec, runs.folder(port))
    argv = command.argv(spec, paths)
    kept = {name: os.environ[name] for name in _KEY_FILES if name in os.environ}
    os.execve(argv[0], argv, command.environment(spec, paths, os.environ) | kept)  # noqa: S606


def adopt(
    environment: Annotated[Path, typer.Argument(help="A virtual environment made from the lab's locks.")],
    stack: Annotated[str, typer.Option(help="Which SGLang.")] = "sglang-0.5.16",
) -> None:
    """Take an environment that an image build has made: link it into the cache and patch it."""
    from fastfill.lab import cache, install, patched, stacks

    chosen = stacks.find(stack)
    if not install.python_of(environment).is_file():
        raise UsageError(
            "there is no virtual environment here",
            where=str(environment),
            next_step="make one from the lab's locks, as docker/lab.Dockerfile does",
        )
    place = cache.folder("environments") / chosen.environment_name()
    if not place.exists():
        place.symlink_to(environment.absolute(), target_is_directory=True)
    patched.ensure(chosen, place)


def write_models() -> None:
    """Write every tiny model into the cache, with the interpreter that runs this."""
    import sys

    from fastfill.lab import models, packages, prepare

    for model in models.VARIANTS:
        prepare.model_folder(model, Path(sys.executable), packages.link())
