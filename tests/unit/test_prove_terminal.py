"""What a person sees: a table and a spinner on a terminal, plain text everywhere else."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest
from contract_server import ContractServer
from pytest_httpserver import HTTPServer


def on_a_terminal(*arguments: str, env: dict[str, str]) -> str:
    """Run the command with a pseudo-terminal as stdout and stderr; returns all that it wrote there."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "fastfill", *arguments]
    environment = {**{name: value for name, value in os.environ.items() if name != "NO_COLOR"}, "COLUMNS": "120", **env}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as child:
        os.close(theirs)
        written = b""
        while True:
            try:
                more = os.read(ours, 65536)
            except OSError:
                break
            if not more:
                break
            written += more
        assert child.wait(60) == 0
    os.close(ours)
    return written.decode()


@pytest.mark.parametrize(
    ("env", "fancy"),
    [({"TERM": "xterm"}, True), ({"TERM": "xterm", "NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
)
def test_table_on_a_terminal_only_where_it_is_welcome(httpserver: HTTPServer, env: dict[str, str], fancy: bool) -> None:
    server = ContractServer(httpserver)
    shown = on_a_terminal("prove", "--url", server.url, env=env)
    assert ("\u2502" in shown) is fancy
    assert ("\x1b[" in shown) is fancy
    assert "FIRED: all 2" in shown and "coverage: 75.0%" in shown
