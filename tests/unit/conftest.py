"""Fixtures of several tests of ``fastfill prove``: a server that speaks its contract, reached over HTTP."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from contract_server import ContractServer
from pytest_httpserver import HTTPServer

from fastfill.proof import visit


@pytest.fixture(scope="module")
def http() -> Iterator[HTTPServer]:
    with HTTPServer(threaded=True) as running:
        yield running


@pytest.fixture
def server(http: HTTPServer, monkeypatch: pytest.MonkeyPatch) -> ContractServer:
    monkeypatch.setattr(visit, "SETTLE_S", 0.2)
    http.clear()
    return ContractServer(http)
