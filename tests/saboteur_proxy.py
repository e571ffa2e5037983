"""Proxies that stand in front of a server and spoil a proof: each is a class of how requests are passed on."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx

from ports import free_port


class Call(NamedTuple):
    """One request as it came."""

    method: str
    target: str
    body: bytes

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def value(self) -> dict[str, Any]:
        return dict(json.loads(self.body)) if self.body else {}

    def with_value(self, value: dict[str, Any]) -> Call:
        return self._replace(body=json.dumps(value).encode())


class Answer(NamedTuple):
    status: int
    kind: str
    body: bytes


class Proxy:
    """Passes everything on unchanged, to the first of its servers."""

    def __init__(self, *servers: str) -> None:
        self.servers = servers
        self.lock = threading.Lock()
        self.client = httpx.Client(timeout=120, trust_env=False, follow_redirects=True)

    def send(self, call: Call, server: int = 0) -> Answer:
        headers = {"Content-Type": "application/json"} if call.body else {}
        got = self.client.request(call.method, self.servers[server] + call.target, content=call.body, headers=headers)
        return Answer(got.status_code, got.headers.get("content-type", ""), got.content)

    def answer(self, call: Call) -> Answer:
        return self.send(call)


class CachesAnswers(Proxy):
    """A semantic cache: the same prompt gets the first answer again, whoever asks."""

    def __init__(self, *servers: str) -> None:
        super().__init__(*servers)
        self.kept: dict[str, Answer] = {}

    def answer(self, call: Call) -> Answer:
        if call.path != "/generate":
            return self.send(call)
        key = json.dumps(call.value["input_ids"])
        if key not in self.kept:
            self.kept[key] = self.send(call)
        return self.kept[key]


class CachesPages(Proxy):
    """An HTTP cache that looks at the path only: what was read once is read for ever."""

    def __init__(self, *servers: str) -> None:
        super().__init__(*servers)
        self.kept: dict[str, Answer] = {}

    def answer(self, call: Call) -> Answer:
        if call.method != "GET":
            return self.send(call)
        if call.path not in self.kept:
            self.kept[call.path] = self.send(call)
        return self.kept[call.path]


class CachesPasses(CachesPages):
    """The same for the passes alone."""

    def answer(self, call: Call) -> Answer:
        return super().answer(call) if call.path == "/fastfill/passes" else self.send(call)


class CachesMetrics(CachesPages):
    """The same for /metrics alone."""

    def answer(self, call: Call) -> Answer:
        return super().answer(call) if call.path.startswith("/metrics") else self.send(call)


class NoMetrics(Proxy):
    """Hides /metrics."""

    def answer(self, call: Call) -> Answer:
        return Answer(404, "text/plain", b"no") if call.path.startswith("/metrics") else self.send(call)


class Truncates(Proxy):
    """Cuts long prompts."""

    def answer(self, call: Call) -> Answer:
        if call.path == "/generate":
            value = call.value
            call = call.with_value(value | {"input_ids": value["input_ids"][:-7]})
        return self.send(call)


class RenamesRequests(Proxy):
    """Gives requests ids of its own."""

    def answer(self, call: Call) -> Answer:
        if call.path == "/generate":
            call = call.with_value(call.value | {"rid": f"gateway-{id(call)}"})
        return self.send(call)


class DropsFallback(Proxy):
    """Takes the wish for the fallback out of a request's id, and answers questions about it as if it had not."""

    def answer(self, call: Call) -> Answer:
        target = call.target.replace("fastfill-fallback-", "fastfill-other-")
        got = self.send(Call(call.method, target, call.body.replace(b"fastfill-fallback-", b"fastfill-other-")))
        return got._replace(body=got.body.replace(b"fastfill-other-", b"fastfill-fallback-"))


class Balances(Proxy):
    """Each request to the next of several servers."""

    turn = 0

    def answer(self, call: Call) -> Answer:
        with self.lock:
            self.turn += 1
        return self.send(call, self.turn % len(self.servers))


class BalancesGenerations(Proxy):
    """Only generations are balanced; everything that is read comes from the first server."""

    turn = 0

    def answer(self, call: Call) -> Answer:
        if call.path not in ("/generate", "/v1/chat/completions"):
            return self.send(call)
        with self.lock:
            self.turn += 1
        return self.send(call, self.turn % len(self.servers))


class Restarts(Proxy):
    """After the first generation another server is there, as after a restart."""

    after = 1
    generations = 0

    def answer(self, call: Call) -> Answer:
        server = int(self.generations >= self.after)
        if call.path == "/generate":
            self.generations += 1
        return self.send(call, min(server, len(self.servers) - 1))


class RestartsForReal(Proxy):
    """Before the second generation the server is started anew at its address, by ``restart``."""

    def __init__(self, server: str, restart: Callable[[], object]) -> None:
        super().__init__(server)
        self.restart = restart
        self.generations = 0

    def answer(self, call: Call) -> Answer:
        if call.path == "/generate":
            self.generations += 1
            if self.generations == 2:
                self.restart()
        return self.send(call)


class OtherModel(Proxy):
    """Reads come from the server that is asked about, generations go to another, with another model."""

    def answer(self, call: Call) -> Answer:
        return self.send(call, int(call.path in ("/generate", "/v1/chat/completions")))


@contextmanager
def running(proxy: Proxy) -> Iterator[str]:
    """Serve a proxy; gives its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            got = proxy.answer(Call(self.command, self.path, body))
            self.send_response(got.status)
            self.send_header("Content-Type", got.kind)
            self.send_header("Content-Length", str(len(got.body)))
            self.end_headers()
            self.wfile.write(got.body)

        do_GET = do_POST = do

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", free_port()), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
