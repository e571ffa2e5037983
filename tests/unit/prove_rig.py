"""What the tests of ``fastfill prove`` share beside the server: running it, leaving steps out, and pages that hang."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from cli_run import Ran, fastfill
from contract_server import ContractServer

from fastfill.proof import gather
from fastfill.proof.transport import Reply, Transport

PATIENCE_S = 0.5


def prove(server: ContractServer | str, *more: str, env: dict[str, str] | None = None) -> tuple[Ran, dict[str, Any]]:
    """``fastfill prove --json`` against a server, or a URL; its document."""
    url = server if isinstance(server, str) else server.url
    ran = fastfill("prove", "--url", url, "--json", *more, env=env)
    return ran, json.loads(ran.out)


def steps_without(*runs: Callable[..., Any]) -> tuple[gather.Step, ...]:
    """The proof's steps but for some, which have tests of their own."""
    return tuple(step for step in gather.STEPS if step.run not in runs)


@contextmanager
def silent(server: ContractServer, pages: dict[str, int]) -> Iterator[None]:
    """Pages that answer so often, and then hang.

    The client is impatient with those alone, and only then: with a short wait for every page a busy machine would make
    one late that is answered.
    """
    server.silent = pages
    send = Transport._send

    def impatient(self: Transport, method: str, path: str, *, timeout_s: float, **more: Any) -> Reply:
        hangs = server.silent.get(path, 1) <= 0
        return send(self, method, path, timeout_s=min(timeout_s, PATIENCE_S) if hangs else timeout_s, **more)

    with mock.patch.object(Transport, "_send", impatient):
        try:
            yield
        finally:
            server.release.set()
