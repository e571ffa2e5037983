"""From the command line's words to a benchmark that can be run: everything is checked before a server is touched."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

from fastfill import __version__
from fastfill.benchmark import arms, grid, schedule
from fastfill.benchmark.arms import Arm, Comparison, Switch
from fastfill.benchmark.connection import Connection
from fastfill.benchmark.ending import orderly
from fastfill.benchmark.journal import Journal, alone
from fastfill.benchmark.load import Loader
from fastfill.benchmark.measured import METRICS
from fastfill.benchmark.proven import Proof, prove
from fastfill.benchmark.restart import OwnPathTarget, RestartTarget, require_free, serve_argv
from fastfill.benchmark.run import Bench, Settings
from fastfill.benchmark.target import PathTarget, Target
from fastfill.errors import UsageError
from fastfill.proof.address import ADMIN_KEY_FILE_VARIABLE, KEY_FILE_VARIABLE, admin_key, api_key
from fastfill.serving import profile
from fastfill.serving.flags import redact

PROOF_S = 120.0
START_S = 3600.0
"""A model of hundreds of GB is loaded in many minutes."""
LAB_START_S = 300.0


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
    require_no_key(wish.extra)
    cells = grid.load(wish.grid)
    units = list(schedule.units(cells, blocks=wish.blocks, noise=wish.noise, switch=comparison.switch))
    return Job(wish, comparison, units, describe(wish, comparison, cells))


def _way(wish: Wish, comparison: Comparison) -> None:
    if comparison.switch == "path":
        if bool(wish.url) + bool(wish.model) + bool(wish.lab) != 1:
            served = arms.served(comparison).profile.name
            raise UsageError(
                "several servers are named" if wish.url or wish.model else "no server is named",
                where="--url, --model, --lab",
                next_step=f"give --url of one with profile {served}, or --model (--lab) for one that is started here",
            )
        if wish.url and wish.extra:
            raise words_unheard(wish.extra)
    elif wish.url or bool(wish.model) == bool(wish.lab):
        raise UsageError(
            "the arms differ in more than the kill switch does: each needs its own start of the server, on this host",
            where="--url" if wish.url else "--model, --lab",
            next_step="give --model (or --lab) and no --url",
        )


def words_unheard(extra: tuple[str, ...]) -> UsageError:
    """Words after ``--`` beside a server that is up already."""
    return UsageError(
        "words after -- are for servers that are started here",
        where=" ".join(extra),
        next_step="leave them out, or give --model instead of --url",
    )


def require_no_key(extra: tuple[str, ...]) -> None:
    """Refuse a key among the words after ``--``: process lists show it, and the benchmark's own requests lack it.

    Raises:
        UsageError: There is one.
    """
    for name in (word.partition("=")[0] for word in extra):
        if name in ("--api-key", "--admin-api-key"):
            raise UsageError(
                f"{name} after -- shows the key in process lists, and the benchmark does not learn it",
                where=name,
                next_step=f"give {name}-file FILE before --",
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
        "extra": redact(list(wish.extra)),
        "client": socket.gethostname(),
    }


class Access(NamedTuple):
    """How to get into a server: its keys, and the files that a server which is started here reads them from.

    Attributes:
        key, admin: None where there is none.
        files: The options of ``fastfill serve`` that name the files.
    """

    key: str | None = None
    admin: str | None = None
    files: tuple[str, ...] = ()


def access(key_file: Path | None, admin_file: Path | None) -> Access:
    """From the command line's options, which win over the environment's variables.

    Raises:
        UsageError: A file cannot be read, or holds no key.
    """
    given = {"--api-key-file": key_file, "--admin-api-key-file": admin_file}
    # The server may be started in another folder.
    files = [word for name, file in given.items() if file is not None for word in (name, str(file.absolute()))]
    return Access(api_key(key_file), admin_key(admin_file), tuple(files))


def execute(
    job: Job, out: Path, *, python: Path | None, access: Access, run_timeout_s: float, probe_tokens: int | None
) -> str:
    """Run what is left of a job; returns why it stopped before the end, else nothing.

    Raises:
        FastfillError: The folder, the server or the interpreter cannot be used.
    """
    from fastfill.path import caller

    wish = job.wish
    connection = Connection(wish.url or f"http://127.0.0.1:{wish.port}", access.key, access.admin)
    interpreter, env = find_interpreter(python)
    # Before anything is written: an address where nobody is, or a model that is not there, leaves no folder.
    start: RestartTarget | None = None
    if wish.url:
        served = str(connection.visit(lambda server: server.facts().model_path))
    else:
        how = Start(wish.model, wish.lab, wish.tp, wish.port, wish.longest_prompt, wish.extra, access.files)
        start, served = restarting({"A": wish.a, "B": wish.b}, connection, out, how)
    with alone(out), orderly():
        journal = Journal(out, job.plan)
        if changed := journal.changed():
            raise UsageError(
                f"{len(changed)} raw file(s) are not what was written",
                where=str(out),
                detail="\n".join(changed),
                next_step="restore them, or begin anew with another --out",
            )
        target: Target
        if start is None:
            target = PathTarget(connection, caller(), journal)
        elif job.comparison.switch == "path":
            switch = PathTarget(connection, caller(), journal)
            target = OwnPathTarget(start, arms.served(job.comparison), switch)
        else:
            target = start

        def proof(arm: Arm) -> Proof:
            return prove(connection, arm, deadline_s=PROOF_S, prompt_tokens=probe_tokens)

        settings = Settings(wish.tokenizer or served, run_timeout_s)
        with Loader(interpreter, env, out / "client.log", access.key) as loader:
            return Bench(job.comparison, job.units, journal, target, connection, loader, proof, settings).run()


class Start(NamedTuple):
    """How servers are started on this host: ``model`` or ``lab``, and the options of ``fastfill serve``."""

    model: str | None
    lab: str | None
    tp: int
    port: int
    longest_prompt: int | None = None
    extra: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()


def restarting(names: dict[str, str], connection: Connection, folder: Path, start: Start) -> tuple[RestartTarget, str]:
    """What starts a server of this host for each arm, by its profile's name, and the folder of its model.

    Raises:
        FastfillError: The port is taken, or the lab cannot be made ready.
    """
    require_free(start.port)
    names = {arm: from_anywhere(name) for arm, name in names.items()}
    if start.lab is None:
        model = from_anywhere(str(start.model))
        argv = serve_argv(
            sys.executable, model=model, tp=start.tp, port=start.port, extra=list(start.extra),
            longest_prompt=start.longest_prompt, keys=list(start.keys),
        )  # fmt: skip
        files = {name: os.environ[name] for name in (KEY_FILE_VARIABLE, ADMIN_KEY_FILE_VARIABLE) if name in os.environ}
        env = {**os.environ, **{name: from_anywhere(file) for name, file in files.items()}}
        return RestartTarget(argv, env, connection, folder, names, START_S), model
    from fastfill.lab import command, prepare, runs
    from fastfill.lab.spec import LabSpec

    spec = LabSpec(model=start.lab, port=start.port, tp=start.tp, flags=start.extra, profile=names["A"])
    spec.check()
    paths = prepare.paths(spec, runs.folder(start.port))

    def in_lab(name: str) -> list[str]:
        words = command.argv(replace(spec, profile=name), paths)
        at = words.index("--")
        return [*words[:at], *start.keys, *words[at:]]

    env = command.environment(spec, paths, os.environ)
    return RestartTarget(in_lab, env, connection, folder, names, LAB_START_S), str(paths.model)


def from_anywhere(name: str) -> str:
    """A file or folder by its whole path: what is started here runs in a folder of its own, and other names stay."""
    return str(Path(name).absolute()) if Path(name).exists() else name


def find_interpreter(python: Path | None, package: str = "sglang") -> tuple[Path, dict[str, str]]:
    """The interpreter that has a harness, and its environment: the one named, this one, or the lab's.

    Raises:
        UsageError: The one that is named cannot be run.
    """
    if python is not None:
        # A path loses its "./" on the way here: what lies in this folder comes before what the shell would find.
        found = shutil.which(python.absolute() if python.is_file() else python)
        if found is None:
            raise UsageError("there is no such interpreter", where=str(python), next_step="give --python another one")
        return Path(found), dict(os.environ)
    if importlib.util.find_spec(package) is not None:
        return Path(sys.executable), dict(os.environ)
    from fastfill.lab import harness

    return harness.interpreter()
