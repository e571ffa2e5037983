"""Starts a lab server, waits until it answers, and stops it."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from fastfill import output
from fastfill.errors import NotReadyError, UsageError
from fastfill.lab import command, prepare, process, runs
from fastfill.lab.progress import Progress
from fastfill.lab.runs import Run
from fastfill.lab.spec import LabSpec

START_SECONDS = 300.0
LOG_LINES = 30
# SGLang's launcher says this when a rank has died, then waits more than a minute for core dumps of GPUs.
_CHILD_FAILED = b"SIGQUIT received"
_PORT_LOST = b"error while attempting to bind on address"


class LabServer:
    """A running lab server; a context manager that stops it.

    Attributes:
        run: Its record.
        spec: What was asked for.
        url: ``http://127.0.0.1:<port>``.
        pid: The launcher.
        log_path: Its output.
        call_log: The emulator's log, one JSON line a call.
        state_dir: Kill switch, audit log, passes.
        model_dir: The checkpoint that it serves.
        seconds: How long it took to start.
    """

    def __init__(self, run: Run, model_dir: Path, seconds: float) -> None:
        self.run = run
        self.spec = run.spec
        self.url = run.url
        self.pid = run.session.leader
        self.log_path = run.log
        self.call_log = runs.folder(run.spec.port) / "aiter.jsonl"
        self.state_dir = run.state_dir
        self.model_dir = model_dir
        self.seconds = seconds

    def alive(self) -> bool:
        """Whether its launcher still runs."""
        return process.alive(self.run.session)

    def memory_mb(self) -> int | None:
        """What it occupies, shared pages counted once, in 10^6 bytes."""
        return process.memory_mb(self.run.session)

    def reference_logprobs(self, prompts: list[list[int]]) -> list[list[float]]:
        """What Hugging Face's code, in fp32, says of the same checkpoint: see ``reference.prompt_logprobs``."""
        argv = ["-m", "fastfill.lab.reference", str(self.model_dir)]
        return json.loads(prepare.run_python(argv, stack=self.spec.stack, stdin=json.dumps(prompts)))  # type: ignore[no-any-return]

    def stop(self) -> None:
        """End its processes and wait until the port is free; nothing happens when it is stopped already."""
        stop(self.run)

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
    spec.check()
    with _lock(spec.port):
        return _start(spec, timeout)


def ensure(spec: LabSpec, timeout: float = START_SECONDS) -> tuple[Run, LabServer | None]:
    """The server on the spec's port, started if none is there. Safe to call from several processes at once.

    Returns:
        Its record, ready, and the server if it was started here.

    Raises:
        UsageError: As :func:`start`, or the server there was started with other settings.
        NotReadyError: As :func:`start`.
    """
    spec.check()
    with _lock(spec.port):
        present = running(spec)
        if present is None:
            started = _start(spec, timeout)
            return started.run, started
        return present if present.ready else _adopt(present, timeout), None


@contextlib.contextmanager
def _lock(port: int) -> Iterator[None]:
    """Held while a server is started, until it answers."""
    from filelock import FileLock, Timeout

    lock = FileLock(str(runs.folder(port) / "lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        output.talk(f"lab: another command is starting a server on port {port}; waiting for it")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _adopt(run: Run, timeout: float) -> Run:
    """Wait for a server whose starter was killed before it answered."""
    try:
        _wait(run.spec, lambda: None if process.alive(run.session) else "", run.log, timeout)
    except NotReadyError:
        stop(run)
        raise
    run = replace(run, ready=True)
    runs.write(run)
    return run


def _start(spec: LabSpec, timeout: float) -> LabServer:
    place = runs.folder(spec.port)
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
    paths = prepare.paths(spec, place)
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


def _launch(spec: LabSpec, paths: command.Paths, timeout: float) -> LabServer:
    begun = time.monotonic()
    log = paths.run / "server.log"
    child, session = process.start(
        command.argv(spec, paths), command.environment(spec, paths, os.environ), log, paths.run
    )
    run = Run(spec, session, ready=False, state_dir=paths.state)

    def ended() -> str | None:
        return None if child.poll() is None else f" (exit code {child.returncode})"

    try:
        runs.write(run)
        _wait(spec, ended, log, timeout)
    except BaseException:
        stop(run)
        raise
    run = replace(run, ready=True)
    runs.write(run)
    return LabServer(run, paths.model, time.monotonic() - begun)


def _wait(spec: LabSpec, ended: Callable[[], str | None], log: Path, timeout: float) -> None:
    """Until it answers; ``ended`` says how its launcher ended, None while it lives."""
    deadline = time.monotonic() + timeout
    with Progress(f"lab: starting SGLang on port {spec.port}") as progress:
        while True:
            how = ended()
            if how is not None or _CHILD_FAILED in log.read_bytes():
                raise NotReadyError(
                    f"the server died at start{how or ''}",
                    where=str(log),
                    detail=tail(log, LOG_LINES),
                    next_step="read the log; a refused setting is named there, with its fix",
                )
            if _PORT_LOST in log.read_bytes():
                # SGLang's launcher then waits for ever, with its schedulers.
                raise NotReadyError(
                    f"port {spec.port} was taken by another process while the server started",
                    where=f"127.0.0.1:{spec.port}",
                    next_step=f"see what it is (ss -ltnp 'sport = :{spec.port}'), or give another --port",
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
    """The last lines of a log, without what SGLang says after a rank has died; long ones are cut."""
    text = log.read_bytes().split(_CHILD_FAILED)[0].decode("utf-8", "replace") if log.exists() else ""
    return "\n".join(line[:300] for line in text.splitlines()[-lines:])
