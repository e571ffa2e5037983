"""A lab in a container, through compose.lab.yaml as a user starts it."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from concurrent.futures import Future, ThreadPoolExecutor

import httpx
from machine import free_port, run, wait


class Lab:
    """One compose project.

    Args:
        project: Its name; two may run side by side.
        key: The server's API key, where it has one.
        settings: LAB_* and FASTFILL_* for compose.lab.yaml.
    """

    def __init__(self, project: str, key: str = "", **settings: str) -> None:
        self.headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.project = project
        self._clients = ThreadPoolExecutor(2)
        self.port = free_port()
        self.settings = {"LAB_PORT": str(self.port), **settings}
        self.url = f"http://127.0.0.1:{self.port}"

    def compose(self, *words: str, check: bool = True, timeout: float = 600) -> subprocess.CompletedProcess[str]:
        # Not this checkout's own .env: a lab needs none.
        files = ("--env-file", "/dev/null", "-f", "compose.lab.yaml")
        argv = ["docker", "compose", "-p", self.project, *files, *words]
        return run(*argv, check=check, timeout=timeout, env={**os.environ, **self.settings})

    def start(self) -> None:
        """Start it, over what a killed run may have left of it."""
        self.down()
        self.compose("up", "--detach", "--no-build")

    def up(self) -> None:
        """Wait until it is healthy; starts it if need be."""
        done = self.compose("up", "--wait", "--no-build", check=False)
        assert done.returncode == 0, done.stderr[-1500:] + self.logs()[-4000:]

    def down(self) -> None:
        """Remove it, with its volumes; nothing is waited for."""
        self.compose("down", "--volumes", "--timeout", "1", check=False)

    def prove(self) -> tuple[int, dict]:
        done = self.compose("run", "--rm", "-T", "prove", "--json", check=False)
        return done.returncode, json.loads(done.stdout)

    def logs(self) -> str:
        return self.compose("logs", "--no-color", "server", check=False).stdout

    def inspect(self, template: str) -> str:
        name = f"{self.project}-server-1"
        return run("docker", "inspect", "--format", template, name).stdout.strip()

    def healthy(self) -> bool:
        return self.inspect("{{.State.Health.Status}}") == "healthy"

    def restarts(self) -> int:
        return int(self.inspect("{{.RestartCount}}"))

    def signal_scheduler(self, name: str) -> None:
        """Send the scheduler a signal, inside the container."""
        self.exec("sh", "-c", f"kill -{name} $(grep -al ^sglang::scheduler /proc/[0-9]*/cmdline | cut -d/ -f3)")

    def exec(self, *words: str) -> str:
        return run("docker", "exec", f"{self.project}-server-1", *words).stdout

    def answers(self) -> bool:
        try:
            body = {"text": "hello", "sampling_params": {"max_new_tokens": 2}}
            return httpx.post(
                f"{self.url}/generate", json=body, headers=self.headers, timeout=20, trust_env=False
            ).is_success
        except httpx.HTTPError:
            return False

    def client(self, tokens: int) -> Future[str]:
        """A client with a long answer, which has begun when this returns. It hears ``complete``, or what went wrong."""
        begun = threading.Event()
        heard = self._clients.submit(self._listen, tokens, begun)
        wait("the begin of an answer", lambda: begun.is_set() or heard.done(), 30)
        return heard

    def _listen(self, tokens: int, begun: threading.Event) -> str:
        body = {"text": "hello", "stream": True, "sampling_params": {"max_new_tokens": tokens, "ignore_eos": True}}
        last = ""
        try:
            with httpx.stream(
                "POST", f"{self.url}/generate", json=body, headers=self.headers, timeout=60, trust_env=False
            ) as reply:
                for line in reply.iter_lines():
                    begun.set()
                    last = line or last
        except httpx.HTTPError as error:
            return type(error).__name__
        return "complete" if last == "data: [DONE]" else last

    def wait_for_restart(self, before: int, seconds: float) -> float:
        """Seconds until Docker has started it again."""
        return wait("a restart", lambda: self.restarts() > before, seconds)

    def wait_until_it_answers(self, seconds: float = 240) -> float:
        return wait("an answer", self.answers, seconds)
