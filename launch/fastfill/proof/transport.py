"""HTTP to one server: every way in which it can fail becomes an error that says what, where and what next."""

from __future__ import annotations

import json
import os
import socket
import ssl
import time
from functools import lru_cache
from types import TracebackType
from typing import Any, NamedTuple

import httpx

from fastfill.errors import FastfillError, NotReadyError, UsageError
from fastfill.proof.address import KEY_VARIABLE, base_url

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Deadline:
    """A point on the monotonic clock, which a change of the system's time does not move."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def remaining(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self._end - time.monotonic())

    def passed(self) -> bool:
        """Whether no time is left."""
        return self.remaining() <= 0.0


@lru_cache(maxsize=4)
def _trusted(file: str | None, folder: str | None) -> ssl.SSLContext:
    """The certificates that are trusted, by the variables that name them; reading them takes longer than a request."""
    return httpx.create_ssl_context(trust_env=True)


class Reply(NamedTuple):
    """A status, the body as text, and the body parsed where it is JSON (else None)."""

    status: int
    text: str
    value: Any
    location: str


class TimedOut(FastfillError):
    """The server took the request and did not answer in time: 4 unless the caller knows better."""

    def __init__(self, url: str, seconds: float) -> None:
        error = NotReadyError(
            f"the server did not answer within {seconds:.0f} s",
            where=url,
            next_step="look at the server's log and load, then try again (a long prefill holds it up)",
        )
        super().__init__(error.what, where=error.where, next_step=error.next_step, code=error.code)


class Transport:
    """Requests to one base URL. Each opens a new connection, so that a load balancer cannot hide behind one.

    Args:
        url: ``http(s)://host[:port][/prefix]``.
        key: The server's API key, sent as a bearer token.
        timeout_s: The longest wait for one answer.
    """

    def __init__(self, url: str, *, key: str | None = None, timeout_s: float = 15.0) -> None:
        self.url = base_url(url)
        self.timeout_s = timeout_s
        self.has_key = key is not None
        self._client = httpx.Client(
            headers={"Authorization": f"Bearer {key}"} if key else {},
            limits=httpx.Limits(max_keepalive_connections=0),
            # Without the environment's proxies on this machine, but with its certificates everywhere.
            trust_env=httpx.URL(self.url).host not in _LOOPBACK,
            verify=_trusted(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")),
        )

    def __enter__(self) -> Transport:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def get(self, path: str, *, params: dict[str, str] | None = None, follow: bool = False) -> Reply:
        """GET; ``follow`` allows redirects (SGLang's /metrics is one)."""
        return self._send("GET", path, timeout_s=self.timeout_s, params=params, follow=follow)

    def post(self, path: str, body: dict[str, Any], *, timeout_s: float | None = None, key: str | None = None) -> Reply:
        """POST a JSON body; ``timeout_s`` replaces the usual wait, ``key`` the usual key."""
        return self._send("POST", path, timeout_s=timeout_s or self.timeout_s, body=body, key=key)

    def _send(
        self,
        method: str,
        path: str,
        *,
        timeout_s: float,
        params: dict[str, str] | None = None,
        body: dict[str, Any] | None = None,
        follow: bool = False,
        key: str | None = None,
    ) -> Reply:
        url = self.url + path
        try:
            answer = self._client.request(
                method,
                url,
                params=params,
                # ASCII with escapes: httpx's own encoder raises on a word that is no UTF-8.
                content=None if body is None else json.dumps(body).encode(),
                headers=_headers(body, key),
                follow_redirects=follow,
                timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, 10.0)),
            )
        except httpx.ConnectTimeout as error:
            raise unreachable(url, "nothing answered the connection attempt") from error
        except httpx.TimeoutException as error:
            raise TimedOut(url, timeout_s) from error
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise UsageError(f"not a URL: {error}", where=url, next_step="--url http://HOST:PORT") from error
        except httpx.TransportError as error:
            raise explain_transport_error(error, url) from error
        reply = Reply(answer.status_code, answer.text, _parsed(answer), answer.headers.get("location", ""))
        self._refuse(reply, url)
        return reply

    def _refuse(self, reply: Reply, url: str) -> None:
        if reply.status in (401, 403, 407):
            raise UsageError(
                "the server refused the API key" if self.has_key else "the server asks for an API key",
                where=f"{url} (HTTP {reply.status})",
                next_step=f"put its key in a file and give --api-key-file FILE, or set {KEY_VARIABLE}"
                + (
                    "; where it has an admin key, path on and off need --admin-api-key-file FILE"
                    if self.has_key
                    else ""
                ),
            )
        if reply.status in (502, 503, 504):
            raise NotReadyError(
                f"the server is not ready: HTTP {reply.status}",
                where=url,
                next_step="wait until /health answers 200 (a large model loads for many minutes), then try again",
            )


def _headers(body: dict[str, Any] | None, key: str | None) -> dict[str, str]:
    headers = {} if body is None else {"Content-Type": "application/json"}
    return {**headers, "Authorization": f"Bearer {key}"} if key else headers


def _parsed(answer: httpx.Response) -> Any:
    try:
        return json.loads(answer.content)
    except ValueError:
        return None


def unreachable(url: str, why: str) -> NotReadyError:
    """No connection: the server is not there, not yet there, or elsewhere."""
    return NotReadyError(
        f"cannot reach the server: {why}",
        where=url,
        next_step="start one (fastfill serve …, or fastfill lab up for the lab) or correct --url",
    )


def explain_transport_error(error: httpx.TransportError, url: str) -> FastfillError:
    """The error of a connection that failed, by its cause: name, TLS, refusal, or not HTTP at all."""
    causes = _causes(error)
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return NotReadyError(
            f"the host name does not resolve: {httpx.URL(url).host}", where=url, next_step="correct the host in --url"
        )
    if any(isinstance(cause, ssl.SSLError) for cause in causes) or "SSL" in str(error) or "TLS" in str(error):
        return NotReadyError(
            f"TLS failed: {error}",
            where=url,
            next_step="use http:// if the server has no TLS; for a private CA set SSL_CERT_FILE to its PEM file",
        )
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes) or "refused" in str(error):
        return unreachable(url, "connection refused")
    if isinstance(error, httpx.RemoteProtocolError) and "disconnected" in str(error):
        return unreachable(url, "it closed the connection without an answer")
    if isinstance(error, httpx.RemoteProtocolError):
        return UsageError(f"what listens there does not speak HTTP: {error}", where=url, next_step="correct --url")
    return unreachable(url, str(error) or type(error).__name__)


def _causes(error: BaseException) -> list[BaseException]:
    chain: list[BaseException] = []
    seen: BaseException | None = error
    while seen is not None and seen not in chain:
        chain.append(seen)
        seen = seen.__cause__ or seen.__context__
    return chain
