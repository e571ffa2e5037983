"""Fixtures for every folder of tests. Nothing heavy is imported here: tests/backend runs in another environment."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ports import free_port

if TYPE_CHECKING:
    from fastfill.lab.server import LabServer
    from fastfill.lab.spec import LabSpec


# A job in the background of a shell has SIGINT ignored, and its children with it: a Ctrl-C in a test would do nothing.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


class LabServers:
    """Lab servers by what they are: the same wish gets the running server, another one takes its place.

    One at a time: a server takes 1.5 GB and both cores while it starts.
    """

    def __init__(self) -> None:
        self._server: LabServer | None = None

    def __call__(self, spec: LabSpec | None = None, *, fresh: bool = False) -> LabServer:
        """The server for this spec, on a port chosen here.

        Args:
            spec: What it is; None for the default.
            fresh: Start anew even if such a server runs, for tests that need empty caches and counters.
        """
        from fastfill.lab import server
        from fastfill.lab.spec import LabSpec

        wish = spec or LabSpec()
        if not fresh and self._server is not None and self._server.alive():
            same = replace(wish, port=self._server.spec.port)
            if not self._server.spec.differences(same):
                return self._server
        self.stop()
        self._server = server.start(replace(wish, port=free_port()))
        return self._server

    def stop(self) -> None:
        """Stop the running server, if any, and drop its run folder."""
        from fastfill.lab import runs

        if self._server is not None:
            stopped, self._server = self._server, None
            stopped.stop()
            shutil.rmtree(runs.folder(stopped.spec.port), ignore_errors=True)


@pytest.fixture(scope="session")
def lab_server() -> Iterator[LabServers]:
    """``lab_server(LabSpec(model="hybrid"))`` gives a running ``LabServer``; the last one is stopped at the end."""
    servers = LabServers()
    try:
        yield servers
    finally:
        servers.stop()
