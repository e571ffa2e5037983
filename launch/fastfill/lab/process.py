"""Starts a process in a session of its own, and ends exactly that session."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

import psutil


class Session(NamedTuple):
    """A session that we started.

    Attributes:
        leader: Its first process, whose pid is the session's id.
        started: The leader's start time in seconds since the epoch, to tell it from a later process of that pid.
    """

    leader: int
    started: float


def start(argv: list[str], env: dict[str, str], log: Path, folder: Path) -> tuple[subprocess.Popen[bytes], Session]:
    """Start a detached process whose output goes to a file."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            argv,
            env=env,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return process, Session(process.pid, psutil.Process(process.pid).create_time())


def members(session: Session) -> list[psutil.Process]:
    """The living processes of the session, none when its leader's pid has come to belong to someone else."""
    try:
        if abs(psutil.Process(session.leader).create_time() - session.started) > 1.0:
            return []
    except psutil.NoSuchProcess:
        # The kernel does not hand out a pid while a session carries its number: what is left is ours.
        pass
    found = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == session.leader and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (ProcessLookupError, PermissionError, psutil.Error):
            continue
    return found


def alive(session: Session) -> bool:
    """Whether the leader still runs."""
    return any(process.pid == session.leader for process in members(session))


def end(session: Session, grace: float = 10.0) -> None:
    """End every process of the session: SIGTERM, then SIGKILL to what is left after ``grace`` seconds."""
    for sent, wait in ((signal.SIGTERM, grace), (signal.SIGKILL, 5.0)):
        left = members(session)
        for process in left:
            try:
                process.send_signal(sent)
            except psutil.Error:
                continue
        deadline = time.monotonic() + wait
        while left and time.monotonic() < deadline:
            _reap(session)
            time.sleep(0.1)
            left = members(session)
        if not left:
            return


def _reap(session: Session) -> None:
    # When the session is our own child, a zombie would keep its pid.
    try:
        os.waitpid(session.leader, os.WNOHANG)
    except ChildProcessError:
        return


def memory_mb(session: Session) -> int | None:
    """What the session's processes occupy, shared pages counted once, in 10^6 bytes; None when it cannot be read."""
    total = 0
    for process in members(session):
        try:
            total += process.memory_full_info().pss
        except (psutil.Error, AttributeError):
            return None
    return round(total / 1e6)


def port_taken(port: int) -> bool:
    """Whether something listens on the port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As the server itself binds: a connection of the last server that lingers is no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            probe.listen(1)
        except OSError:
            return True
    return False


def wait_free(port: int, seconds: float = 15.0) -> bool:
    """Wait until nothing listens on the port."""
    deadline = time.monotonic() + seconds
    while port_taken(port):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True
