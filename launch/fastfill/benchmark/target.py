"""The server under test: how one arm takes the place of the other, and whether the server is idle in between."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from fastfill.benchmark.arms import Arm
from fastfill.errors import FastfillError, NotReadyError
from fastfill.lab import process
from fastfill.lab.process import Session
from fastfill.proof.server import Server, no_plugin
from fastfill.proof.transport import Transport

RUNNING = ("sglang:num_running_reqs", "sglang:num_queue_reqs")
_POLL_S = 0.1
_Found = TypeVar("_Found")


class Target(Protocol):
    """A server, or several one after another, that can be each of the arms."""

    url: str
    described: str

    def take(self, arm: Arm) -> bool:
        """Make the server this arm; returns whether it was started anew.

        Raises:
            FastfillError: It cannot be.
        """

    def close(self) -> None:
        """Leave things as they were found."""


class Connection:
    """One server's address and keys; a new HTTP client for each visit, as loads are hours apart."""

    def __init__(self, url: str, key: str | None = None, admin_key: str | None = None) -> None:
        self.url = url
        self.key = key
        self.admin_key = admin_key

    def visit(self, do: Callable[[Server], _Found], timeout_s: float = 15.0) -> _Found:
        """Do something with the server."""
        with Transport(self.url, key=self.key, timeout_s=timeout_s) as transport:
            return do(Server(transport))

    def alive(self) -> bool:
        """Whether it still answers as a server."""
        try:
            with Transport(self.url, key=self.key, timeout_s=10.0) as transport:
                return transport.get("/model_info").status == 200
        except FastfillError:
            return False

    def drain(self, timeout_s: float) -> None:
        """Wait until nothing runs and nothing waits, twice in a row, then empty the prefix cache.

        Raises:
            FastfillError: It is still busy when the time is over, runs without metrics, or keeps its cache.
        """
        deadline = time.monotonic() + timeout_s
        idle = 0
        with Transport(self.url, key=self.key) as transport:
            while idle < 2:
                waiting = under_way(transport.get("/metrics", follow=True).text)
                if waiting is None:
                    raise FastfillError(
                        "the server says nothing of its running requests",
                        where=f"{self.url}/metrics",
                        next_step="start it with --enable-metrics (every profile does)",
                    )
                idle = idle + 1 if waiting == 0 else 0
                if waiting and time.monotonic() > deadline:
                    raise FastfillError(
                        f"{waiting:.0f} request(s) are still under way after {timeout_s:.0f} s: others use the server",
                        where=self.url,
                        next_step="take it out of the router first",
                    )
                time.sleep(_POLL_S)
            while (reply := transport.post("/flush_cache", {}, key=self.admin_key)).status != 200:
                if time.monotonic() > deadline:
                    raise FastfillError(
                        f"the server keeps its prefix cache (HTTP {reply.status})",
                        where=f"{self.url}/flush_cache",
                        next_step="look at its log; with an admin key, give --admin-api-key-file",
                    )
                time.sleep(_POLL_S)


def under_way(metrics: str) -> float | None:
    """Requests that run or wait, over all ranks; None where the page has no such gauge."""
    from prometheus_client.parser import text_string_to_metric_families

    values = [
        sample.value
        for family in text_string_to_metric_families(metrics)
        for sample in family.samples
        if sample.name in RUNNING
    ]
    return sum(values) if values else None


class PathTarget:
    """A server that is up already; the kill switch makes the arms, and is put back at the end."""

    def __init__(self, connection: Connection, who: str) -> None:
        self.connection = connection
        self.url = connection.url
        self.described = f"the server at {connection.url}, arms by the kill switch"
        self._who = who
        self._before: str | None = None

    def take(self, arm: Arm) -> bool:
        """Throw the switch; False, as nothing was started."""
        found = self.connection.visit(lambda server: _turn(server, arm.path, self._who, self.connection.admin_key))
        if self._before is None:
            self._before = str(found)
        return False

    def close(self) -> None:
        """Put the switch back."""
        if self._before is not None:
            before, self._before = self._before, None
            self.connection.visit(lambda server: _turn(server, before, self._who, self.connection.admin_key))


def _turn(server: Server, state: str, who: str, admin_key: str | None) -> str:
    """Turn the switch where it stands otherwise; returns where it stood."""
    status = server.status()
    if status is None:
        raise no_plugin(server.url)
    if status.path.path != state:
        server.set_path(state, who=who, why="fastfill bench: the next arm", admin_key=admin_key)
        after = server.status()
        if after is None or after.path.path != state:
            raise FastfillError(f"the kill switch does not go {state}", where=f"{server.url}/fastfill/status")
    return status.path.path


class RestartTarget:
    """A server of this host that is started for each arm: ``fastfill serve`` with the arm's profile.

    Args:
        argv: Given a profile's file or name, the command that starts its server.
        env: The environment of that command.
        connection: Where it will listen.
        folder: For its log.
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
        """The arm's server; the running one stays if it is that and lives."""
        if self._running is not None and self._running[0] == arm.name and self._running[1].poll() is None:
            return False
        self.close()
        log = self._folder / f"server-{arm.name}.log"
        child, session = process.start(self._argv(self._profiles[arm.name]), self._env, log, self._folder)
        self._running = (arm.name, child, session)
        deadline = time.monotonic() + self._timeout_s
        while not self.connection.alive():
            if child.poll() is not None or time.monotonic() > deadline:
                how = f"exit code {child.returncode}" if child.poll() is not None else f"{self._timeout_s:.0f} s passed"
                self.close()
                raise NotReadyError(
                    f"the server of arm {arm.name} did not start ({how})",
                    where=str(log),
                    detail="\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-12:]),
                    next_step="read the log; then give the same command again",
                )
            time.sleep(0.5)
        return True

    def close(self) -> None:
        """End the server."""
        if self._running is not None:
            _, child, session = self._running
            self._running = None
            process.end(session)
            child.wait()


def serve_argv(
    python: str, *, model: str, tp: int, port: int, extra: list[str], longest_prompt: int | None
) -> Callable[[str], list[str]]:
    """The command line of ``fastfill serve`` for a profile; ``extra`` are the words after ``--``."""

    def argv(profile: str) -> list[str]:
        words = [python, "-m", "fastfill", "serve", "--profile", profile, "--model", model, "--tp", str(tp)]
        words += ["--port", str(port)]
        if longest_prompt is not None:
            words += ["--longest-prompt", str(longest_prompt)]
        return [*words, "--", *extra] if extra else words

    return argv


def host_load() -> dict[str, float]:
    """How busy this host is: load averages, and the share of CPU time that a hypervisor took since boot."""
    import psutil

    one, five, _ = os.getloadavg()
    times = psutil.cpu_times()
    return {"load1": one, "load5": five, "cpus": float(os.cpu_count() or 1), "steal": getattr(times, "steal", 0.0)}
