"""HAProxy before a real sglang-router, set up as the role does: TLS, two keys at once, nothing is cut off."""

from __future__ import annotations

import json
import shutil
import signal
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import httpx
import jinja2
import programs
import pytest
import router_process
import yaml
from rig import ROOT, until

from fastfill.fleet import cli, places, routers
from fastfill.fleet.places import Instance
from ports import free_port

ROLE = ROOT / "ansible/roles/router"
DEFAULTS = yaml.safe_load((ROLE / "defaults/main.yml").read_text())
CONTROL = "control-key"


class Server(BaseHTTPRequestHandler):
    """What a router asks of a server; a completion takes as long as ``Server.takes`` says."""

    takes = 0.0
    keys: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        """Health, and what the router wants to know of a server."""
        self._answer({"model_path": "lab", "served_model_name": "lab", "tp_size": 1})

    def do_POST(self) -> None:
        """A completion."""
        self.rfile.read(int(self.headers.get("content-length", 0)))
        type(self).keys.append(self.headers.get("authorization"))
        time.sleep(self.takes)
        self._answer({"id": "1", "object": "text_completion", "model": "lab", "choices": [{"text": "x", "index": 0}]})

    def _answer(self, value: dict[str, Any]) -> None:
        text = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


class Front:
    """HAProxy and the router behind it, as the role sets them up.

    Args:
        folder: For settings.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self.inner, self.metrics = free_port(), free_port(), free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        self.router: subprocess.Popen[bytes] | None = None
        self.haproxy: subprocess.Popen[bytes] | None = None
        words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=127.0.0.1", "-days", "2"]
        words += ["-addext", "subjectAltName=IP:127.0.0.1"]
        words += ["-keyout", str(folder / "key"), "-out", str(folder / "cert")]
        subprocess.run(words, check=True, capture_output=True)
        self.trust = ssl.create_default_context(cafile=str(folder / "cert"))
        (folder / "tls.pem").write_text((folder / "cert").read_text() + (folder / "key").read_text())

    def configure(self, keys: list[str]) -> None:
        """Write HAProxy's settings from the role's template."""
        (self.folder / "keys").write_text("".join(f"Bearer {key}\n" for key in keys))
        told = {
            **DEFAULTS,
            "router_bind": "127.0.0.1",
            "router_port": self.port,
            "router_inner_port": self.inner,
            "router_client_keys": keys,
            "router_tls_cert": str(self.folder / "tls.pem"),
        }
        text = (
            jinja2.Environment(trim_blocks=True, keep_trailing_newline=True)
            .from_string((ROLE / "templates/front.cfg.j2").read_text())
            .render(told)
        )
        text = text.replace("/etc/fastfill-router/keys", str(self.folder / "keys"))
        # As nobody in particular: there is no user haproxy where only its files were unpacked.
        text = text.replace("  user haproxy\n  group haproxy\n", "")
        (self.folder / "front.cfg").write_text(text)

    def start_router(self) -> None:
        """Start it as the unit does, with its settings in a credential."""
        words: list[Any] = ["--host", "127.0.0.1", "--port", self.inner]
        words += ["--prometheus-host", "127.0.0.1", "--prometheus-port", self.metrics]
        words += ["--health-check-interval-secs", 1, "--health-success-threshold", 1]
        self.router = router_process.start(self.folder, CONTROL, words)
        until(lambda: self.direct("/health") == 200, 60, lambda: "the router does not answer")

    def start(self) -> None:
        """Start both."""
        self.start_router()
        with (self.folder / "haproxy.log").open("ab") as log:
            argv = [shutil.which("haproxy") or "/usr/sbin/haproxy", "-W", "-f", str(self.folder / "front.cfg")]
            self.haproxy = subprocess.Popen(argv, stdout=log, stderr=log)
        until(
            lambda: self.haproxy.poll() is not None or self.ask("/health") == 200, 60, lambda: "HAProxy does not answer"
        )
        assert self.haproxy.poll() is None, (self.folder / "haproxy.log").read_text()

    def reload(self) -> None:
        """As the unit does."""
        assert self.haproxy
        self.haproxy.send_signal(signal.SIGUSR2)

    def stop(self) -> None:
        """End both."""
        for process in (self.haproxy, self.router):
            if process:
                process.kill() if process is self.router else process.terminate()
                process.wait()

    def direct(self, path: str) -> int:
        """The status of the router itself."""
        try:
            return httpx.get(f"http://127.0.0.1:{self.inner}{path}", trust_env=False).status_code
        except httpx.TransportError:
            return 0

    def ask(self, path: str, key: str = "", method: str = "GET") -> int:
        """The status of an answer; 0 where nobody answers."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        body = {"model": "lab", "prompt": "x"} if method == "POST" else None
        try:
            with httpx.Client(verify=self.trust, trust_env=False, timeout=30) as http:
                return http.request(method, f"{self.url}{path}", headers=headers, json=body).status_code
        except httpx.TransportError:
            return 0

    def complete(self, key: str = "") -> int:
        """The status of a completion."""
        return self.ask("/v1/completions", key, "POST")


@pytest.fixture
def front(tmp_path: Path) -> Iterator[Front]:
    programs.need("haproxy")
    found = Front(tmp_path)
    found.configure(["old"])
    try:
        found.start()
        yield found
    finally:
        found.stop()


@pytest.fixture
def server() -> Iterator[str]:
    Server.keys, Server.takes = [], 0.0
    http = ThreadingHTTPServer(("127.0.0.1", free_port()), Server)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{http.server_port}"
    http.shutdown()


def test_two_keys_hold_while_they_change_and_nothing_is_cut(
    front: Front, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = f"http://127.0.0.1:{front.inner}"
    routers.reconcile(inner, {server: True}, CONTROL, "of-the-servers")
    until(lambda: front.complete("old") == 200, 60, lambda: "no completion")
    assert [front.complete(key) for key in ("", "new", CONTROL)] == [401, 401, 401]
    # A client's key opens neither the router's own API nor the servers.
    assert [front.ask("/workers", key) for key in ("", "old", CONTROL)] == [401, 401, 200]
    assert set(Server.keys) == {"Bearer of-the-servers"}
    assert front.ask("/v1/models") == 401 and front.ask("/readiness") == 200
    Server.takes = 4.0
    slow: list[int] = []
    thread = threading.Thread(target=lambda: slow.append(front.complete("old")))
    thread.start()
    time.sleep(0.5)
    front.configure(["old", "new"])
    front.reload()
    Server.takes = 0.0
    until(lambda: front.complete("new") == 200, 60, lambda: "the new key does not hold")
    assert front.complete("old") == 200
    front.configure(["new"])
    front.reload()
    until(lambda: front.complete("old") == 401, 60, lambda: "the old key still holds")
    assert front.complete("new") == 200
    thread.join()
    assert slow == [200], "a request in flight was cut off by the change"
    assert len(routers.workers(inner, CONTROL) or []) == 1, "the router was not restarted"


def test_a_restarted_router_is_empty_until_the_timer_has_been_there(front: Front, server: str, tmp_path: Path) -> None:
    """The unit's command, as the timer runs it; tests/ansible/test_router.py has the timer itself."""
    one = Instance(tmp_path / "root", "main")
    one.release("a").mkdir(parents=True)
    places.write(one.release("a") / "release.json", {"schema": 1})
    one.point("proven", "a")
    one.serve(True)
    inner = f"http://127.0.0.1:{front.inner}"
    places.write(one.folder / "instance.json", {"url": server, "routers": [inner]})
    (one.folder / "secrets").mkdir()
    (one.folder / "secrets/router_key").write_text(CONTROL)
    reconcile = ["--root", str(tmp_path / "root"), "reconcile"]
    assert cli.main(reconcile) == 0
    until(lambda: front.complete("old") == 200, 60, lambda: "no completion")
    assert front.router
    front.router.kill()
    front.router.wait()
    front.start_router()
    assert routers.workers(inner, CONTROL) == []
    assert cli.main(reconcile) == 0
    until(lambda: front.complete("old") == 200, 60, lambda: "the router was not filled again")
    for _ in range(3):
        assert cli.main(reconcile) == 0
    assert [worker.url for worker in routers.workers(inner, CONTROL) or []] == [server]
