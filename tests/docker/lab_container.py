"""A lab in a container, through compose.lab.yaml as a user starts it."""

from __future__ import annotations

import json
import os
import subprocess
import time

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
        self.port = free_port()
        self.settings = {"LAB_PORT": str(self.port), **settings}
        self.url = f"http://127.0.0.1:{self.port}"
        self.seconds = 0.0

    def compose(self, *words: str, check: bool = True, timeout: float = 600) -> subprocess.CompletedProcess[str]:
        argv = ["docker", "compose", "-p", self.project, "-f", "compose.lab.yaml", *words]
        return run(*argv, check=check, timeout=timeout, env={**os.environ, **self.settings})

    def up(self) -> None:
        begun = time.monotonic()
        done = self.compose("up", "--wait", "--no-build", check=False)
        self.seconds = time.monotonic() - begun
        assert done.returncode == 0, done.stderr[-1500:] + self.logs()[-4000:]

    def down(self) -> None:
        self.compose("down", "--volumes", "--timeout", "10", check=False)

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
        body = {"text": "hello", "sampling_params": {"max_new_tokens": 2}}
        try:
            return (
                httpx.post(
                    f"{self.url}/generate", json=body, headers=self.headers, timeout=20, trust_env=False
                ).status_code
                == 200
            )
        except httpx.HTTPError:
            return False

    def wait_for_restart(self, before: int, seconds: float) -> float:
        """Seconds until Docker has started it again."""
        return wait("a restart", lambda: self.restarts() > before, seconds)

    def wait_until_it_answers(self, seconds: float = 240) -> float:
        return wait("an answer", self.answers, seconds)
