"""A real sglang-router before the hosts, and clients that count what they lose."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import router_process
from rig import until

SPREAD = ("--policy", "round_robin")
QUICK = ("--health-check-interval-secs", 2, "--health-failure-threshold", 2, "--health-success-threshold", 1)


class Router:
    """One router on this machine, as the role starts it.

    Args:
        folder: For its settings and its log.
        address: That the hosts reach.
        port: Its own; the metrics' is the next one.
        key: Of its own API.
    """

    def __init__(self, folder: Path, address: str, port: int, key: str) -> None:
        self.folder, self.url, self.key = folder, f"http://{address}:{port}", key
        self.arguments: list[Any] = ["--host", address, "--port", port]
        self.arguments += ["--prometheus-host", address, "--prometheus-port", port + 1]
        self.arguments += [*SPREAD, *QUICK, "--health-check-endpoint", "/metrics/"]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        self.process = router_process.start(self.folder, self.key, self.arguments)
        until(self.answers, 60, lambda: (self.folder / "router.log").read_text()[-2000:])

    def answers(self) -> bool:
        """Whether it takes requests at all."""
        try:
            return httpx.get(f"{self.url}/health", timeout=5, trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False

    def healthy(self) -> set[str]:
        """The servers that it sends requests to."""
        headers = {"Authorization": f"Bearer {self.key}"}
        reply = httpx.get(f"{self.url}/workers", headers=headers, timeout=5, trust_env=False)
        return {one["url"].rstrip("/") for one in reply.json()["workers"] if one["is_healthy"]}

    def kill(self) -> None:
        """SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(30)


class Traffic:
    """Clients that ask one after the other, plain and streaming, until they are stopped.

    Args:
        url: Of the router.
        plain: Clients that want whole answers.
        streams: Clients that stream; an answer counts only with its finish_reason and [DONE].
        pause: Seconds between a client's answer and its next request.
    """

    def __init__(self, url: str, plain: int = 3, streams: int = 2, pause: float = 0.1) -> None:
        self.url, self._pause = url, pause
        self.good = {"plain": 0, "stream": 0}
        self.lost: list[str] = []
        self._stop = threading.Event()
        kinds = ["plain"] * plain + ["stream"] * streams
        self._clients = [threading.Thread(target=self._ask, args=(kind,), daemon=True) for kind in kinds]

    def __enter__(self) -> Traffic:
        for client in self._clients:
            client.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        for client in self._clients:
            client.join(120)

    def reaches(self, plain: int, streams: int, seconds: float) -> None:
        """Wait until so many were answered."""
        until(
            lambda: self.good["plain"] >= plain and self.good["stream"] >= streams,
            seconds,
            lambda: f"{self.good} were answered, lost: {self.lost[:5]}",
        )

    def _ask(self, kind: str) -> None:
        number = 0
        with httpx.Client(timeout=180, trust_env=False) as client:
            while not self._stop.is_set():
                number += 1
                said = self._one(client, kind, f"{threading.get_ident()} {number}: tell me")
                if said:
                    self.lost.append(f"{time.strftime('%H:%M:%S')} {kind}: {said}")
                    time.sleep(0.5)
                else:
                    self.good[kind] += 1
                self._stop.wait(self._pause)

    def _one(self, client: httpx.Client, kind: str, prompt: str) -> str:
        """One request; "" where all of the answer came, else what was wrong with it."""
        body = {"model": "lab", "prompt": prompt, "max_tokens": 3, "stream": kind == "stream", "temperature": 0}
        try:
            if kind == "plain":
                reply = client.post(f"{self.url}/v1/completions", json=body)
                ended = reply.status_code == 200 and reply.json()["choices"][0]["finish_reason"] in ("length", "stop")
                return "" if ended else f"HTTP {reply.status_code} {reply.text[:200]}"
            with client.stream("POST", f"{self.url}/v1/completions", json=body) as stream:
                lines = [line.removeprefix("data: ") for line in stream.iter_lines() if line.startswith("data: ")]
            if stream.status_code != 200:
                return f"HTTP {stream.status_code}"
        except (httpx.HTTPError, ValueError, KeyError) as error:
            return f"{type(error).__name__}: {error}"
        if not lines or lines[-1] != "[DONE]":
            return f"cut off after {len(lines)} events"
        finished = [json.loads(line)["choices"][0].get("finish_reason") for line in lines[:-1]]
        return "" if finished and finished[-1] else f"no finish_reason: {lines[-2][:200]}"
