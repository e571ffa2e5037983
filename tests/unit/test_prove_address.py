"""``fastfill prove`` at an address where no SGLang server answers, or with a key that cannot be one."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from cli_run import fastfill
from pytest_httpserver import HTTPServer


def refused(*arguments: str) -> tuple[int, dict[str, Any], str]:
    ran = fastfill("prove", "--json", *arguments)
    assert ran.err.count("error:") == 1 and "next:" in ran.err and "Traceback" not in ran.err
    return ran.code, json.loads(ran.out), ran.err


@pytest.mark.parametrize(
    ("body", "kind"),
    [("<html><body>nginx</body></html>", "text/html"), ('{"status": "ok"}', "application/json"), ("", "text/plain")],
)
def test_url_that_is_no_sglang_server(httpserver: HTTPServer, body: str, kind: str) -> None:
    httpserver.expect_request("/server_info").respond_with_data(body, content_type=kind)
    code, document, err = refused("--url", httpserver.url_for("/"))
    assert (code, document["verdict"]) == (2, None) and "no SGLang server" in err


def test_server_that_is_starting(httpserver: HTTPServer) -> None:
    httpserver.expect_request("/server_info").respond_with_data("", status=503)
    code, document, err = refused("--url", httpserver.url_for("/"))
    assert (code, document["exit_code"]) == (4, 4) and "not ready" in err


def test_nobody_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        code, _, err = refused("--url", f"http://127.0.0.1:{free.getsockname()[1]}")
    assert code == 4 and "connection refused" in err and "fastfill lab up" in err


def test_host_that_does_not_exist() -> None:
    code, _, err = refused("--url", "http://no-such-host.invalid:30000")
    assert code == 4 and "no-such-host.invalid" in err


def test_tls_where_there_is_none(httpserver: HTTPServer) -> None:
    code, _, err = refused("--url", httpserver.url_for("/").replace("http://", "https://"))
    assert code == 4 and "TLS failed" in err


@pytest.mark.parametrize(
    ("greeting", "expected", "words"),
    [
        (b"220 mail.example ESMTP\r\n\r\n", 2, "does not speak HTTP"),
        (b"", 4, "closed the connection without an answer"),
    ],
)
def test_something_that_is_no_http(greeting: bytes, expected: int, words: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            connection, _ = listener.accept()
            connection.recv(65536)
            connection.sendall(greeting)
            connection.close()

        thread = threading.Thread(target=greet, daemon=True)
        thread.start()
        code, _, err = refused("--url", f"http://127.0.0.1:{listener.getsockname()[1]}")
        thread.join(5)
    assert code == expected and words in err


@pytest.mark.parametrize(
    "url", ["localhost:30000", "ftp://h", "http://", "http://u:p@h:1", "http://h:99999", "", "http://h/?a"]
)
def test_malformed_url(url: str) -> None:
    code, _, err = refused("--url", url)
    assert code == 2 and "u:p" not in err


@pytest.mark.parametrize("content", [None, "", "two words", "caf\u00e9"])
def test_unusable_key_file(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "key"
    if content is not None:
        file.write_text(content)
    code, _, err = refused("--url", "http://127.0.0.1:9", "--api-key-file", str(file))
    assert code == 2
    assert str(file) in err
