"""Runs the server's torch profiler around a few passes, and fetches the traces from where the server wrote them."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tarfile
import tempfile
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, cast

from fastfill.errors import NotReadyError
from fastfill.proof.server import Server
from fastfill.proof.traces import TraceRank, read
from fastfill.proof.transport import Deadline, TimedOut
from fastfill.proof.wire import Rank, RankPasses

SUFFIXES = (".trace.json.gz", ".trace.json")
START_S = 60.0
STOP_S = 300.0
"""How long the server may take to write its traces, within the deadline: a GPU's have millions of events."""
LEAST_S = 5.0
"""What is granted past the deadline: a profiler that was started has to be stopped."""


class Profile:
    """The profiler of one server, from start to the traces.

    Args:
        server: The server.
        steps: Forward passes after which it ends by itself.
        folder: A folder that the server writes into and this process reads, by one name; None for one below /tmp.
        container: Where the server runs, if it is a container on this host; empty otherwise.
    """

    def __init__(self, server: Server, steps: int, folder: Path | None, container: str) -> None:
        self._server = server
        self._steps = steps
        self._container = container
        self.name = f"fastfill-prove-{uuid.uuid4().hex}"
        self.folder = PurePosixPath(folder or "/tmp") / self.name  # noqa: S108
        self._before: dict[Rank, int] = {}
        self._started = False

    def start(self, deadline: Deadline) -> str:
        """Note where the rings stand, and start.

        Returns:
            Why it could not be started, empty if it was.

        Raises:
            TimedOut: The server does not tell its ring.
        """
        self._before = {one.rank: one.passes[-1].number for one in self._ring() if one.passes}
        try:
            self._started = True
            timeout_s = max(LEAST_S, min(START_S, deadline.remaining()))
            return self._server.start_profile(str(self.folder), self._steps, timeout_s=timeout_s)
        except (TimedOut, NotReadyError) as error:
            # It may have begun all the same.
            self.stop(deadline)
            return f"the profiler did not start: {error.what}"

    def stop(self, deadline: Deadline) -> bool:
        """Stop, and wait until the traces are written; whether it ran until now."""
        try:
            return self._server.stop_profile(timeout_s=max(LEAST_S, min(STOP_S, deadline.remaining())))
        except (TimedOut, NotReadyError):
            return False

    def between(self) -> tuple[tuple[RankPasses, ...], bool]:
        """Every pass that the ranks noted since the start, and whether the rings still hold all of them."""
        found, complete = [], True
        for one in self._ring():
            before = self._before.get(one.rank, 0)
            later = tuple(each for each in one.passes if each.number > before)
            if later and later[0].number > before + 1:
                complete = False
            found.append(one.model_copy(update={"passes": later}))
        return tuple(found), complete

    def _ring(self) -> tuple[RankPasses, ...]:
        passes = self._server.passes("")
        return passes.ranks if passes else ()

    def fetch(self, deadline: Deadline) -> tuple[tuple[TraceRank, ...], str]:
        """Read the traces.

        Returns:
            One trace a file, by rank, and why there is none, empty where there are some.
        """
        here = Path(self.folder)
        if here.is_dir():
            found = [_read(file.name, file.open("rb")) for file in sorted(here.iterdir()) if _is_trace(file.name)]
        elif self._container:
            try:
                found, why = self._from_container(max(LEAST_S, deadline.remaining()))
            except OSError as error:
                found, why = [], str(error)
            if why:
                return (), f"docker could not fetch the traces from {self._container}: {why}"
        else:
            return (), (
                f"the server wrote its traces to {self.folder} on its own machine: run prove there, or give "
                "--container NAME, or a --profile-dir that both see"
            )
        if not found:
            return (), "the server wrote no trace: it was being profiled already, or its disk is full"
        return tuple(sorted(found, key=lambda one: one.rank.key())), ""

    def remove(self) -> bool:
        """Remove the traces, however the proof ended; False where some are left: somebody else's, or out of reach."""
        here = Path(self.folder)
        if here.is_dir():
            shutil.rmtree(here, ignore_errors=True)
        elif self._started and self._container:
            argv = ["docker", "exec", self._container, "rm", "-rf", str(self.folder)]
            try:
                return subprocess.run(argv, capture_output=True, timeout=30, check=False).returncode == 0
            except (OSError, subprocess.TimeoutExpired):
                return False
        return not here.exists()

    def _from_container(self, timeout_s: float) -> tuple[list[TraceRank], str]:
        """The traces, and why there are none where docker is to blame."""
        argv = ["docker", "cp", f"{self._container}:{self.folder}", "-"]
        found: list[TraceRank] = []
        with (
            tempfile.TemporaryFile() as said,
            subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=said) as child,
            _within(timeout_s, child),
        ):
            assert child.stdout is not None
            with contextlib.suppress(tarfile.ReadError), tarfile.open(fileobj=child.stdout, mode="r|") as archive:
                for member in archive:
                    content = archive.extractfile(member) if member.isfile() and _is_trace(member.name) else None
                    if content is not None:
                        found.append(_read(PurePosixPath(member.name).name, content))
            # To its end: docker must not die of it that nobody reads the archive's padding.
            while child.stdout.read(1 << 16):
                pass
            code = child.wait()
            said.seek(0)
            words = said.read(4096).decode("utf-8", "replace").strip()
        if found or not code:
            return found, ""
        return [], f"not within {timeout_s:.0f} s" if code < 0 else words or f"exit code {code}"


@contextlib.contextmanager
def _within(timeout_s: float, child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Kill a process that takes longer: what it has written ends early then, and is read as that."""
    timer = threading.Timer(timeout_s, child.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _is_trace(name: str) -> bool:
    return name.endswith(SUFFIXES)


def _read(name: str, content: object) -> TraceRank:
    with cast("IO[bytes]", content) as file:
        return read(name, file)
