"""One proof of a running server, shared by the assertions: pytest tests/live --url http://HOST:30000."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """The server, and further words for ``fastfill prove``."""
    parser.addoption("--url", default="", help="the server to prove: http(s)://HOST:PORT")
    parser.addoption("--prove", default="", help='further options of fastfill prove, as one word: "--load 0"')


@pytest.fixture(scope="session")
def proof(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The document of ``fastfill prove --json``. No server is no proof, which is an error and not a skip."""
    url = request.config.getoption("--url")
    if not url:
        raise pytest.UsageError("tests/live proves a running server: give --url http://HOST:PORT")
    words = shlex.split(request.config.getoption("--prove"))
    done = subprocess.run(
        [sys.executable, "-m", "fastfill", "prove", "--url", url, "--json", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    print(done.stderr)
    document: dict[str, Any] = json.loads(done.stdout)
    assert document["exit_code"] == done.returncode
    return document
