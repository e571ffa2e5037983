"""A server as a child process: its output passed on, its signals forwarded, its end made complete."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import BinaryIO

import psutil

from fastfill import output
from fastfill.lab import process
from fastfill.lab.process import Session
from sglang_fastfill import journal

MARK = b"LoadKernel"
"""aiter_hip_common.h prints it with the kernel's symbol and file, once a process, at log level INFO (the default)."""
RECORD = "kernels.jsonl"
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_LOOK_SECONDS = 1.0


class Child:
    """One server.

    Args:
        argv: Its command.
        state_dir: Where kernel lines are kept; None keeps none.
        stopped_s: Seconds after which a process that is stopped, not merely busy, ends the server.
    """

    def __init__(self, argv: list[str], state_dir: Path | None, stopped_s: float) -> None:
        self._argv = argv
        self._state_dir = state_dir
        self._stopped_s = stopped_s

    def run(self) -> int:
        """Run it to its end.

        Returns:
            Its exit code; 128 and the signal's number where one ended it; 1 where it was ended for a stopped process.
        """
        child = subprocess.Popen(self._argv, stdout=subprocess.PIPE, start_new_session=True)
        session = Session(child.pid, psutil.Process(child.pid).create_time())

        def forward(number: int, frame: FrameType | None) -> None:
            child.send_signal(number)

        for wanted in FORWARDED:
            signal.signal(wanted, forward)
        assert child.stdout is not None
        pump = threading.Thread(target=self._pump, args=(child.stdout, child.pid), daemon=True)
        pump.start()
        code = self._wait(child, session)
        process.end(session, grace=5.0)
        pump.join(timeout=5.0)
        return code

    def _wait(self, child: subprocess.Popen[bytes], session: Session) -> int:
        since: dict[int, float] = {}
        while True:
            try:
                code = child.wait(_LOOK_SECONDS)
                return code if code >= 0 else 128 - code
            except subprocess.TimeoutExpired:
                pass
            since = still_stopped(since, process.members(session), time.monotonic())
            for pid, begun in since.items():
                if time.monotonic() - begun > self._stopped_s:
                    output.talk(
                        f"supervise: process {pid} has been stopped for {self._stopped_s:.0f} s: ending the server"
                    )
                    # SIGTERM would wait for requests that the stopped process holds.
                    for member in process.members(session):
                        member.kill()
                    child.wait()
                    return 1

    def _pump(self, source: BinaryIO, pid: int) -> None:
        for line in source:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
            if MARK in line and self._state_dir is not None:
                self._keep(line, pid)

    def _keep(self, line: bytes, pid: int) -> None:
        text = line.decode("utf-8", errors="replace").strip()
        record = {"time": time.time(), "server_pid": pid, "line": text}
        try:
            self._state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)  # type: ignore[union-attr]
            journal.append(self._state_dir / RECORD, record)  # type: ignore[operator]
        except OSError as error:
            output.talk(f"supervise: the kernel's line could not be kept: {error}")


def still_stopped(since: dict[int, float], members: list[psutil.Process], now: float) -> dict[int, float]:
    """Which processes are stopped, and since when: those that were before keep their time."""
    found: dict[int, float] = {}
    for member in members:
        try:
            if member.status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP):
                found[member.pid] = since.get(member.pid, now)
        except psutil.Error:
            continue
    return found
