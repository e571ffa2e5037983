"""`fastfill model fetch` with the real huggingface_hub against a hub on loopback."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
import typer

from fastfill import model, weights
from fastfill.pinning import stack as stacks

COMMIT = "d" * 40
FILES = {"config.json": b'{"architectures": ["X"]}\n', "model.safetensors": b"w" * 300_000}


class Hub(BaseHTTPRequestHandler):
    """The few pages of the hub that a download asks for."""

    asked: ClassVar[list[str]] = []

    def log_message(self, *_: object) -> None:
        """Quiet."""

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        Hub.asked.append(f"{self.command} {self.path} {self.headers.get('Authorization', '')}")
        path = self.path.partition("?")[0]
        if "/resolve/" in path:
            content = FILES[path.rpartition("/")[2]]
            self.send_response(200)
            self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
            self.send_header("X-Repo-Commit", COMMIT)
        else:
            siblings = [{"rfilename": name} for name in FILES]
            document = {"id": "org/name", "_id": "x", "sha": COMMIT, "siblings": siblings, "tags": [], "private": False}
            if "/tree/" in path:
                document = [
                    {"type": "file", "path": name, "size": len(content), "oid": "e" * 40}
                    for name, content in FILES.items()
                ]
            content = json.dumps(document).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body:
            self.wfile.write(content)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    chosen = stacks.load()
    pinned = chosen.model.model_copy(update={"hub": url, "repository": "org/name", "revision": COMMIT})
    monkeypatch.setattr(stacks, "load", lambda name="": chosen.model_copy(update={"model": pinned}))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    Hub.asked.clear()
    yield url
    server.shutdown()


def test_it_fetches_the_pinned_revision_and_verifies_it(hub: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("hf_planted\n")
    # The stand-in checkpoint has no tokenizer: the command says so after the download.
    with pytest.raises(typer.Exit):
        model.fetch(tmp_path / "model", token_file=tmp_path / "token")
    assert all(f"/{COMMIT}" in line for line in Hub.asked)
    assert all(line.endswith("Bearer hf_planted") for line in Hub.asked)
    for name, content in FILES.items():
        assert (tmp_path / "model" / name).read_bytes() == content
    assert weights.verify(tmp_path / "model", COMMIT).problems == ()
    assert weights.verify(tmp_path / "model", COMMIT).hashed == 0


def test_a_second_fetch_downloads_nothing_again(hub: str, tmp_path: Path) -> None:
    for _ in range(2):
        Hub.asked.clear()
        with pytest.raises(typer.Exit):
            model.fetch(tmp_path / "model", token_file=None)
    assert [line for line in Hub.asked if line.startswith("GET") and "/resolve/" in line] == []
