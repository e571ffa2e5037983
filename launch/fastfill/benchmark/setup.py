"""From the command line's words to a benchmark that can be run: everything is checked before a server is touched."""

from __future__ import annotations

import importlib.util
import os
import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

from fastfill import __version__
from fastfill.benchmark import arms, grid, schedule
from fastfill.benchmark.arms import Arm, Comparison, Switch
from fastfill.benchmark.ending import orderly
from fastfill.benchmark.journal import Journal
from fastfill.benchmark.load import Loader
from fastfill.benchmark.measured import METRICS
from fastfill.benchmark.proven import prove
from fastfill.benchmark.run import Bench, Settings
from fastfill.benchmark.target import Connection, PathTarget, RestartTarget, Target, serve_argv
from fastfill.errors import UsageError
from fastfill.serving import profile

PROOF_S = 120.0
START_S = 3600.0
"""A model of hundreds of GB is loaded in many minutes."""


class Wish(NamedTuple):
    """What the user asked for, unchecked."""

    a: str
    b: str
    grid: str
    blocks: int
    noise: int
    metric: str
    switch: str | None = None
    label: str = ""
    url: str | None = None
    model: str | None = None
    lab: str | None = None
    tp: int = 1
    port: int = 30000
    longest_prompt: int | None = None
    tokenizer: str | None = None
    extra: tuple[str, ...] = ()


class Job(NamedTuple):
    """A checked wish: the arms, the runs, and the plan as it is kept in the folder."""

    wish: Wish
    comparison: Comparison
    units: list[schedule.Unit]
    plan: dict[str, Any]


def settle(wish: Wish) -> Job:
    """Check a wish.

    Raises:
        UsageError: A profile, the grid, the metric or the way to the server is not right.
    """
    if wish.metric not in METRICS:
        raise UsageError(
            f"{wish.metric} is no metric", where="--metric", next_step=f"use one of {', '.join(sorted(METRICS))}"
        )
    if wish.switch not in (None, "path", "restart"):
        raise UsageError(f"{wish.switch} is no way to switch", where="--switch", next_step="--switch path, or restart")
    comparison = arms.compare(
        profile.load(wish.a), profile.load(wish.b), switch=cast("Switch | None", wish.switch), label=wish.label
    )
    _way(wish, comparison)
    cells = grid.load(wish.grid)
    units = list(schedule.units(cells, blocks=wish.blocks, noise=wish.noise, switch=comparison.switch))
    return Job(wish, comparison, units, describe(wish, comparison, cells))


def _way(wish: Wish, comparison: Comparison) -> None:
    if comparison.switch == "path":
        if not wish.url:
            served = arms.served(comparison).name
            raise UsageError(
                "no server is named",
                where="--url",
                next_step=f"start one with fastfill serve --profile {served} and give --url, or use --switch restart",
            )
        if wish.model or wish.lab or wish.extra:
            raise UsageError(
                "--model, --lab and words after -- are for servers that are started here: --switch restart"
            )
    elif wish.url or bool(wish.model) == bool(wish.lab):
        raise UsageError(
            "the arms differ in more than the kill switch does: each needs its own start of the server, on this host",
            where="--url" if wish.url else "--model, --lab",
            next_step="give --model (or --lab) and no --url",
        )


def describe(wish: Wish, comparison: Comparison, cells: list[grid.Cell]) -> dict[str, Any]:
    """The plan: whatever a result depends on, fixed before the first run."""
    return {
        "schema": "fastfill.bench-plan/1",
        "fastfill": __version__,
        "a": comparison.a.profile.name,
        "b": comparison.b.profile.name,
        "profiles": {arm.name: arm.profile.model_dump(mode="json") for arm in (comparison.a, comparison.b)},
        "fires": {arm.name: arm.fires for arm in (comparison.a, comparison.b)},
        "differences": [one._asdict() for one in comparison.differences],
        "label": comparison.label,
        "switch": comparison.switch,
        "metric": wish.metric,
        "cells": [cell._asdict() for cell in cells],
        "blocks": wish.blocks,
        "noise": wish.noise,
        "server": wish.url or f"{'lab ' + wish.lab if wish.lab else wish.model}, tp {wish.tp}",
        "extra": list(wish.extra),
        "client": socket.gethostname(),
    }


def execute(
    job: Job,
    out: Path,
    *,
    python: Path | None,
    key: str | None,
    admin: str | None,
    run_timeout_s: float,
    probe_tokens: int | None,
) -> str:
    """Run what is left of a job; returns why it stopped before the end, else nothing.

    Raises:
        FastfillError: The folder, the server or the interpreter cannot be used.
    """
    from fastfill.path import caller

    journal = Journal(out, job.plan)
    if changed := journal.changed():
        raise UsageError(
            f"{len(changed)} raw file(s) are not what was written",
            where=str(out),
            detail="\n".join(changed),
            next_step="restore them, or begin anew with another --out",
        )
    connection = Connection(job.wish.url or f"http://127.0.0.1:{job.wish.port}", key, admin)
    interpreter, env = find_interpreter(python)
    target: Target
    if job.comparison.switch == "path":
        target = PathTarget(connection, caller())
        tokenizer = job.wish.tokenizer or str(connection.visit(lambda server: server.facts().model_path))
    else:
        target, model = restarting(
            {"A": job.wish.a, "B": job.wish.b}, connection, out, model=job.wish.model, lab=job.wish.lab,
            tp=job.wish.tp, port=job.wish.port, longest_prompt=job.wish.longest_prompt, extra=job.wish.extra,
            timeout_s=START_S, env=dict(os.environ),
        )  # fmt: skip
        tokenizer = job.wish.tokenizer or model

    def proof(arm: Arm) -> Any:
        return prove(connection, arm, deadline_s=PROOF_S, prompt_tokens=probe_tokens)

    settings = Settings(tokenizer, run_timeout_s)
    with orderly(), Loader(interpreter, env, out / "client.log", key) as loader:
        return Bench(job.comparison, job.units, journal, target, connection, loader, proof, settings).run()


def restarting(
    names: dict[str, str],
    connection: Connection,
    folder: Path,
    *,
    model: str | None,
    lab: str | None,
    tp: int,
    port: int,
    longest_prompt: int | None,
    extra: tuple[str, ...],
    timeout_s: float,
    env: dict[str, str],
) -> tuple[RestartTarget, str]:
    """What starts a server of this host for each arm, by its profile's name, and the folder of its model.

    Raises:
        FastfillError: The lab cannot be made ready.
    """
    if lab is None:
        argv = serve_argv(
            sys.executable, model=str(model), tp=tp, port=port, extra=list(extra), longest_prompt=longest_prompt
        )
        return RestartTarget(argv, env, connection, folder, names, timeout_s), str(model)
    from fastfill.lab import command, prepare, runs
    from fastfill.lab.spec import LabSpec

    spec = LabSpec(model=lab, port=port, tp=tp, flags=extra, profile=names["A"])
    spec.check()
    paths = prepare.paths(spec, runs.folder(port))

    def in_lab(name: str) -> list[str]:
        return command.argv(replace(spec, profile=name), paths)

    lab_env = command.environment(spec, paths, env)
    return RestartTarget(in_lab, lab_env, connection, folder, names, timeout_s), str(paths.model)


def find_interpreter(python: Path | None) -> tuple[Path, dict[str, str]]:
    """The interpreter with the harnesses and its environment: the one named, this one, or the lab's."""
    if python is not None:
        return python, dict(os.environ)
    if importlib.util.find_spec("sglang") is not None:
        return Path(sys.executable), dict(os.environ)
    from fastfill.lab import harness

    return harness.interpreter()
