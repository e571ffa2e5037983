"""One server under test: visits, whether it lives, and waiting until nobody uses it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from fastfill.errors import FastfillError, UsageError
from fastfill.proof.server import Server
from fastfill.proof.transport import Deadline, Transport

RUNNING = ("sglang:num_running_reqs", "sglang:num_queue_reqs")
_POLL_S = 0.1
_Found = TypeVar("_Found")


class Connection:
    """One server's address and keys; a new HTTP client for each visit, as loads are hours apart."""

    def __init__(self, url: str, key: str | None = None, admin_key: str | None = None) -> None:
        self.url = url
        self.key = key
        self.admin_key = admin_key

    def visit(self, do: Callable[[Server], _Found], timeout_s: float = 15.0) -> _Found:
        """Do something with the server.

        Raises:
            FastfillError: It cannot be reached, or whatever ``do`` raises.
        """
        with Transport(self.url, key=self.key, timeout_s=timeout_s) as transport:
            return do(Server(transport))

    def alive(self) -> bool:
        """Whether it still answers as a server.

        Raises:
            UsageError: It wants another key, or what answers is no such server.
        """
        return self._answers("/model_info", 10.0)

    def ready(self) -> bool:
        """Whether it generates. SGLang runs a generation to know: not while anything is measured.

        Raises:
            UsageError: It will never answer: it wants another key, or is no such server.
        """
        return self._answers("/health_generate", 30.0)

    def _answers(self, path: str, timeout_s: float) -> bool:
        try:
            return self.visit(lambda server: server.transport.get(path).status == 200, timeout_s)
        except UsageError:
            raise
        except FastfillError:
            return False

    def drain(self, timeout_s: float) -> None:
        """Wait until nothing runs and nothing waits, twice in a row, then empty the prefix cache.

        Raises:
            FastfillError: It is still busy when the time is over, runs without metrics, or keeps its cache.
        """
        deadline = Deadline(timeout_s)
        self.visit(lambda server: self._idle(server.transport, deadline))
        self.visit(lambda server: self._flush(server.transport, deadline))

    def _idle(self, transport: Transport, deadline: Deadline) -> None:
        idle = 0
        while idle < 2:
            waiting = under_way(transport.get("/metrics", follow=True).text)
            if waiting is None:
                raise FastfillError(
                    "the server says nothing of its running requests",
                    where=f"{self.url}/metrics",
                    next_step="start it with --enable-metrics (every profile does)",
                )
            idle = idle + 1 if waiting == 0 else 0
            if waiting and deadline.passed():
                raise FastfillError(
                    f"{waiting:.0f} request(s) are still under way after {deadline.seconds:.0f} s: others use the "
                    "server, or it hangs",
                    where=self.url,
                    next_step="take it out of the router first; look at its log",
                )
            time.sleep(_POLL_S)

    def _flush(self, transport: Transport, deadline: Deadline) -> None:
        while (reply := transport.post("/flush_cache", {}, key=self.admin_key)).status != 200:
            if deadline.passed():
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
