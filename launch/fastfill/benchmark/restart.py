"""Servers of this host: started for each arm, or once and turned by the kill switch."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from fastfill import output
from fastfill.benchmark.arms import Arm
from fastfill.benchmark.connection import Connection
from fastfill.benchmark.ending import closing
from fastfill.benchmark.target import PathTarget
from fastfill.errors import NotReadyError
from fastfill.lab import process
from fastfill.lab.process import Session
from fastfill.proof.transport import Deadline

_POLL_S = 0.5


class RestartTarget:
    """A server of this host that is started for each arm: ``fastfill serve`` with the arm's profile.

    Args:
        argv: Given a profile's file or name, the command that starts its server.
        env: The environment of that command.
        connection: Where it will listen.
        folder: For its log.
        profiles: The profile's file or name, by the arm's name.
        timeout_s: How long it may take to answer.
    """

    def __init__(
        self,
        argv: Callable[[str], list[str]],
        env: dict[str, str],
        connection: Connection,
        folder: Path,
        profiles: dict[str, str],
        timeout_s: float,
    ) -> None:
        self._argv = argv
        self._env = env
        self.connection = connection
        self._folder = folder
        self._profiles = profiles
        self._timeout_s = timeout_s
        self._running: tuple[str, subprocess.Popen[bytes], Session] | None = None
        self.url = connection.url
        self.described = "a server of this host, started again for each arm"

    def take(self, arm: Arm) -> bool:
        """The arm's server; the running one stays if it is that and lives.

        Raises:
            NotReadyError: It does not start, or something else listens on its port.
        """
        if self._running is not None and self._running[0] == arm.name and self._lives(self._running[1]):
            return False
        self.close()
        log = self._folder / f"server-{arm.name}.log"
        # The last one may take a moment to let go of it.
        require_free(int(self.url.rpartition(":")[2]), 15.0)
        output.talk(f"bench: starting the server of arm {arm.name}; its log: {log}")
        child, session = process.start(self._argv(self._profiles[arm.name]), self._env, log, self._folder)
        self._running = (arm.name, child, session)
        deadline = Deadline(self._timeout_s)
        while not self.connection.ready():
            if child.poll() is not None or deadline.passed():
                how = f"exit code {child.returncode}" if child.poll() is not None else f"{self._timeout_s:.0f} s passed"
                self.close()
                raise NotReadyError(
                    f"the server of arm {arm.name} did not start ({how})",
                    where=str(log),
                    detail="\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-12:]),
                    next_step="read the log; then give the same command again",
                )
            time.sleep(_POLL_S)
        return True

    def close(self) -> None:
        """End the server."""
        if self._running is not None:
            _, child, session = self._running
            self._running = None
            process.end(session)
            child.wait()

    def _lives(self, child: subprocess.Popen[bytes]) -> bool:
        # SGLang's launcher outlives its schedulers for a while, and answers nothing then.
        return child.poll() is None and self.connection.alive()


class OwnPathTarget:
    """A server of this host that is started once; the kill switch makes the arms.

    Args:
        start: Starts it.
        served: The arm whose profile it is started with: the one with the flag.
        switch: Of the same server.
    """

    def __init__(self, start: RestartTarget, served: Arm, switch: PathTarget) -> None:
        self._start = start
        self._served = served
        self._switch = switch
        self.url = start.url
        self.described = "a server of this host, arms by the kill switch"

    def take(self, arm: Arm) -> bool:
        """Start the server where it does not run, and throw its switch."""
        started = self._start.take(self._served)
        self._switch.take(arm)
        return started

    def put_back(self) -> None:
        """The switch alone: another server takes this one's place."""
        self._switch.close()

    def close(self) -> None:
        """Put the switch back, for where it stands outlives its server; then end the server."""
        with closing(self._switch.close, self._start.close):
            pass


def require_free(port: int, seconds: float = 0.0) -> None:
    """What listens there would be measured as an arm, while the real server cannot start.

    Raises:
        NotReadyError: Something listens there and does not go away within ``seconds``.
    """
    if not process.wait_free(port, seconds):
        raise NotReadyError(
            f"port {port} is taken: no server can be started there",
            where=f"127.0.0.1:{port}",
            next_step=f"see what it is (ss -ltnp 'sport = :{port}'), or give another --port",
        )


def serve_argv(
    python: str, *, model: str, tp: int, port: int, extra: list[str], longest_prompt: int | None, keys: list[str]
) -> Callable[[str], list[str]]:
    """The command line of ``fastfill serve`` for a profile.

    Args:
        extra: The words after ``--``.
        keys: Options that name the key files.
    """

    def argv(profile: str) -> list[str]:
        words = [python, "-m", "fastfill", "serve", "--profile", profile, "--model", model, "--tp", str(tp)]
        words += ["--port", str(port), *keys]
        if longest_prompt is not None:
            words += ["--longest-prompt", str(longest_prompt)]
        return [*words, "--", *extra] if extra else words

    return argv
