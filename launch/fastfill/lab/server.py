"""Starts a lab server, waits until it answers, and stops it."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from fastfill import output
from fastfill.errors import NotReadyError, UsageError
from fastfill.lab import cache, command, install, models, packages, patched, process, runs, stacks
from fastfill.lab.progress import Progress
from fastfill.lab.runs import Run
from fastfill.lab.spec import LabSpec

START_SECONDS = 240.0
LOG_LINES = 30


class LabServer:
    """A running lab server; a context manager that stops it.

    Attributes:
        spec: What was asked for.
        url: ``http://127.0.0.1:<port>``.
        pid: The launcher.
        log_path: Its output.
        call_log: The emulator's log, one JSON line a call.
        state_dir: Kill switch, audit log, passes.
        seconds: How long it took to start.
    """

    def __init__(self, run: Run, seconds: float) -> None:
        self._run = run
        self.spec = run.spec
        self.url = run.url
        self.pid = run.session.leader
        self.log_path = run.log
        self.call_log = runs.folder(run.spec.port) / "aiter.jsonl"
        self.state_dir = run.state_dir
        self.seconds = seconds

    def alive(self) -> bool:
        """Whether its launcher still runs."""
        return process.alive(self._run.session)

    def memory_mb(self) -> int | None:
        """What it occupies, shared pages counted once, in 10^6 bytes."""
        return process.memory_mb(self._run.session)

    def stop(self) -> None:
        """End its processes and wait until the port is free; nothing happens when it is stopped already."""
        stop(self._run)

    def __enter__(self) -> LabServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def start(spec: LabSpec, timeout: float = START_SECONDS) -> LabServer:
    """Start a server and wait until it answers.

    Args:
        spec: What to start.
        timeout: Seconds to wait after the environment is ready.

    Raises:
        UsageError: The spec cannot be, or another lab server is on the port.
        NotReadyError: The port is taken, nothing could be installed, or the server died or did not answer in time; its
            last log lines are shown and nothing of it is left running.
    """
    from filelock import FileLock

    spec.check()
    place = runs.folder(spec.port)
    with FileLock(str(place / "lock")):
        present = runs.read(spec.port)
        if present is not None and present.state() != "dead":
            raise UsageError(
                f"a lab server is on port {spec.port} already",
                where=present.url,
                next_step=f"fastfill lab down --port {spec.port}, or give another --port",
            )
        if process.port_taken(spec.port):
            raise NotReadyError(
                f"port {spec.port} is taken by something that is not a lab server",
                where=f"127.0.0.1:{spec.port}",
                next_step=f"see what it is (ss -ltnp 'sport = :{spec.port}'), or give another --port",
            )
        if present is not None:
            stop(present)
        paths = _prepare(spec, place)
        return _launch(spec, paths, timeout)


def running(spec: LabSpec) -> Run | None:
    """The server on the spec's port.

    Raises:
        UsageError: It was started with other settings.
    """
    present = runs.read(spec.port)
    if present is None or present.state() == "dead":
        return None
    differences = present.spec.differences(spec)
    if differences:
        raise UsageError(
            f"the lab server on port {spec.port} was started with other settings",
            where=present.url,
            detail="\n".join(differences),
            next_step=f"fastfill lab down --port {spec.port}, or give another --port",
        )
    return present


def stop(run: Run) -> None:
    """End a server's processes, wait until its port is free, forget it."""
    process.end(run.session)
    if process.members(run.session) or not process.wait_free(run.spec.port):
        raise NotReadyError(
            f"the server on port {run.spec.port} could not be ended",
            where=f"pid {run.session.leader}",
            next_step=f"ps -o pid,stat,cmd --sid {run.session.leader}",
        )
    runs.forget(run.spec.port)


def model_folder(model: str, python: Path, links: Path) -> Path:
    """The checkpoint of a variant, written on first use; a folder is taken as it is."""
    if model not in models.VARIANTS:
        return Path(model).absolute()
    from filelock import FileLock

    place = cache.folder("models") / f"{model}-{models.fingerprint()}"
    if place.is_dir():
        return place
    with FileLock(str(place) + ".lock"):
        if place.is_dir():
            return place
        partial = place.with_name(f".{place.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        output.talk(f"lab: writing model {model}: {models.VARIANTS[model]}")
        answer = subprocess.run(
            [str(python), "-m", "fastfill.lab.models", model, str(partial)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, command.python_path(links)))},
            capture_output=True,
            text=True,
            check=False,
        )
        if answer.returncode != 0:
            raise NotReadyError(f"model {model} could not be written", where=str(partial), detail=answer.stderr[-2000:])
        partial.rename(place)
    return place


def _prepare(spec: LabSpec, place: Path) -> command.Paths:
    stack = stacks.find(spec.stack)
    environment = install.ensure(stack)
    pristine = patched.ensure(stack, environment)
    links = packages.link()
    python = install.python_of(environment)
    model = model_folder(spec.model, python, links)
    state = Path(spec.state_dir).absolute() if spec.state_dir else place / "state"
    if not spec.state_dir:
        # The lab starts clean: a kill switch thrown in an earlier trial would make this one a riddle.
        shutil.rmtree(state, ignore_errors=True)
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    (place / "aiter.jsonl").unlink(missing_ok=True)
    return command.Paths(python=python, links=links, pristine=pristine, model=model, run=place, state=state)


def _launch(spec: LabSpec, paths: command.Paths, timeout: float) -> LabServer:
    begun = time.monotonic()
    log = paths.run / "server.log"
    child, session = process.start(
        command.argv(spec, paths), command.environment(spec, paths, os.environ), log, paths.run
    )
    run = Run(spec, session, ready=False, state_dir=paths.state)
    try:
        runs.write(run)
        _wait(spec, child, log, timeout)
    except BaseException:
        stop(run)
        raise
    run = replace(run, ready=True)
    runs.write(run)
    return LabServer(run, time.monotonic() - begun)


def _wait(spec: LabSpec, child: subprocess.Popen[bytes], log: Path, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    with Progress(f"lab: starting SGLang on port {spec.port}") as progress:
        while True:
            if child.poll() is not None:
                raise NotReadyError(
                    f"the server died at start (exit code {child.returncode})",
                    where=str(log),
                    detail=tail(log, LOG_LINES),
                    next_step="read the log; a refused setting is named there, with its fix",
                )
            if _ready(spec.port, log):
                return
            if time.monotonic() > deadline:
                raise NotReadyError(
                    f"the server did not answer within {timeout:.0f} s",
                    where=str(log),
                    detail=tail(log, LOG_LINES),
                    next_step="read the log; a slow machine needs more: fastfill lab up --timeout SECONDS",
                )
            progress.show()
            time.sleep(0.25)


def _ready(port: int, log: Path) -> bool:
    """SGLang's own word that its warm-up is through, and an answer over HTTP. /health would run a generation."""
    if b"fired up and ready to roll" not in log.read_bytes():
        return False
    import httpx

    try:
        return httpx.get(f"http://127.0.0.1:{port}/model_info", timeout=5, trust_env=False).status_code in (200, 401)
    except httpx.HTTPError:
        return False


def tail(log: Path, lines: int) -> str:
    """The last lines of a log; long ones are cut."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    return "\n".join(line[:300] for line in text.splitlines()[-lines:])
