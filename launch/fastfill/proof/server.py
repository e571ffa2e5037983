"""A SGLang server with our plugin, seen from outside: each method is one endpoint."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

from fastfill.errors import ExitCode, FastfillError, NotReadyError, UsageError
from fastfill.proof.counters import Counters, parse, total
from fastfill.proof.probe import ORDINARY_IDS, PLAIN_ENGLISH, sample_text
from fastfill.proof.transport import Reply, TimedOut, Transport
from fastfill.proof.wire import Passes, PathState, ServerFacts, Status, Wire

_Document = TypeVar("_Document", bound=Wire)


class Answer(NamedTuple):
    """What the server answered.

    Attributes:
        refusal: Empty when it answered.
        prompt_tokens: None when it did not say.
        said: The answer itself: what /generate returned, or the message of a chat.
    """

    refusal: str
    prompt_tokens: int | None = None
    said: dict[str, Any] = {}  # noqa: RUF012


class Server:
    """The endpoints that a proof and the kill switch need, over a Transport that maps failures to errors.

    Attributes:
        info: What /server_info answered last, with whatever secrets are in it.
        sent: The bodies that were sent as requests, in order.
        left_running: Requests that nobody waits for and that the server would not drop.
    """

    def __init__(self, transport: Transport, *, admin_key: str | None = None) -> None:
        self.transport = transport
        self.url = transport.url
        self.admin_key = admin_key
        self.info: dict[str, Any] = {}
        self.sent: list[dict[str, Any]] = []
        self.left_running = 0

    def facts(self) -> ServerFacts:
        """``/server_info``, or ``/get_server_info`` on servers older than that name.

        Raises:
            UsageError: What answers is no SGLang server.
        """
        reply = self.transport.get("/server_info")
        if reply.status == 404:
            reply = self.transport.get("/get_server_info")
        if reply.status != 200 or not isinstance(reply.value, dict) or "tp_size" not in reply.value:
            raise UsageError(
                f"this is no SGLang server: /server_info answered {_describe(reply)}",
                where=self.url,
                next_step="give the URL of the server itself; a router or proxy in front cannot be proven",
            )
        self.info = reply.value
        return _read(ServerFacts, reply.value, f"{self.url}/server_info")

    def status(self) -> Status | None:
        """``/fastfill/status``; None when the server has no such route, which is to say no plugin."""
        return self._ours(Status, self.transport.get("/fastfill/status"), "/fastfill/status")

    def passes(self, rid: str) -> Passes | None:
        """``/fastfill/passes?rid=``: the passes that hold a request whose id starts with ``rid``."""
        return self._ours(Passes, self.transport.get("/fastfill/passes", params={"rid": rid}), "/fastfill/passes")

    def set_path(self, state: str, *, who: str, why: str, admin_key: str | None = None) -> PathState | None:
        """``POST /fastfill/path``; None when there is no plugin."""
        body = {"path": state, "who": who, "why": why}
        return self._ours(PathState, self.transport.post("/fastfill/path", body, key=admin_key), "/fastfill/path")

    def counters(self) -> Counters | None:
        """Our counters in ``/metrics``; None when the server runs without metrics."""
        reply = self.transport.get("/metrics", follow=True)
        if reply.status == 404:
            return None
        where = f"{self.url}/metrics"
        if reply.status != 200 or "<html" in reply.text[:500].lower():
            raise _strange(where, f"answered {_describe(reply)}")
        try:
            return parse(reply.text)
        except ValueError as error:
            raise _strange(where, f"is not in the Prometheus text format: {error}") from error

    def prompt_tokens(self) -> float:
        """Prompt tokens that SGLang has taken since it started, by its own counter; 0 where it counts none."""
        reply = self.transport.get("/metrics", follow=True)
        try:
            return total(reply.text, "sglang:prompt_tokens_total") if reply.status == 200 else 0.0
        except ValueError as error:
            raise _strange(f"{self.url}/metrics", f"is not in the Prometheus text format: {error}") from error

    def ordinary_ids(self) -> tuple[int, ...]:
        """Token ids that plain text gives with this server's tokenizer; a safe range where it has no tokenizer."""
        tokens = self._tokens(sample_text())
        if not all(type(token) is int for token in tokens):
            return ORDINARY_IDS
        distinct = tuple(sorted(set(tokens)))
        return distinct if len(distinct) > 1 else ORDINARY_IDS

    def characters_per_token(self) -> float:
        """How much plain English one token of this server's tokenizer holds; 1 where it has no tokenizer."""
        tokens = self._tokens(PLAIN_ENGLISH)
        return len(PLAIN_ENGLISH) / len(tokens) if tokens else 1.0

    def _tokens(self, text: str) -> list[Any]:
        """``/tokenize``; nothing where the server has no tokenizer, or does not answer."""
        try:
            reply = self.transport.post("/tokenize", {"prompt": text, "add_special_tokens": False})
        except (TimedOut, NotReadyError):
            return []
        tokens = reply.value.get("tokens") if reply.status == 200 and isinstance(reply.value, dict) else None
        return tokens if isinstance(tokens, list) else []

    def generate(self, body: dict[str, Any], *, timeout_s: float) -> Answer:
        """``/generate`` without streaming.

        Args:
            body: As ``probe.request`` builds it.
            timeout_s: How long the answer may take.

        Returns:
            The answer; a server that is gone, or too busy to take it, has refused.

        Raises:
            TimedOut: No answer in that time.
        """
        reply = self._asked("/generate", body, timeout_s)
        if isinstance(reply, Answer):
            return reply
        value = reply.value[0] if isinstance(reply.value, list) and reply.value else reply.value
        meta = value.get("meta_info") if isinstance(value, dict) else None
        if not isinstance(meta, dict):
            return Answer(f"/generate answered {_describe(reply)}")
        finish = meta.get("finish_reason")
        if isinstance(finish, dict) and finish.get("type") == "abort":
            return Answer(f"aborted: {finish.get('message', 'no reason given')}")
        tokens = meta.get("prompt_tokens")
        return Answer("", tokens if isinstance(tokens, int) else None, value if isinstance(value, dict) else {})

    def chat(self, body: dict[str, Any], *, timeout_s: float) -> Answer:
        """``/v1/chat/completions`` without streaming; arguments and errors as :meth:`generate`."""
        reply = self._asked("/v1/chat/completions", body, timeout_s)
        if isinstance(reply, Answer):
            return reply
        try:
            return Answer("", int(reply.value["usage"]["prompt_tokens"]), dict(reply.value["choices"][0]["message"]))
        except (KeyError, IndexError, TypeError, ValueError):
            return Answer(f"/v1/chat/completions answered {_describe(reply)}")

    def _asked(self, path: str, body: dict[str, Any], timeout_s: float) -> Reply | Answer:
        """The reply, or the refusal that it amounts to."""
        self.sent.append(body)
        try:
            reply = self.transport.post(path, body, timeout_s=timeout_s)
        except NotReadyError as error:
            # A full queue is answered with 503, too.
            return Answer(error.what)
        return reply if reply.status == 200 else Answer(f"HTTP {reply.status}: {_message(reply)}")

    def abort(self, rid: str) -> None:
        """Ask the server to drop a request that nobody waits for; that it may refuse is no error of the proof's."""
        try:
            self.transport.post("/abort_request", {"rid": rid}, timeout_s=2.0, key=self.admin_key)
        except FastfillError:
            self.left_running += 1

    def start_profile(self, folder: str, steps: int, *, timeout_s: float) -> str:
        """``/start_profile`` for CPU and GPU; returns why the server did not, empty if it did.

        Args:
            folder: Where the server is to write the traces, on its machine.
            steps: Forward passes after which it ends by itself.
            timeout_s: How long the answer may take.

        Raises:
            TimedOut: No answer in that time.
        """
        body = {"output_dir": folder, "num_steps": steps, "activities": ["CPU", "GPU"], "with_stack": False}
        reply = self.transport.post("/start_profile", body, timeout_s=timeout_s, key=self.admin_key)
        if reply.status == 200:
            return ""
        if reply.status == 404:
            return "the server does not know /start_profile"
        return f"/start_profile answered HTTP {reply.status}: {_message(reply)}"

    def stop_profile(self, *, timeout_s: float) -> bool:
        """``/stop_profile``; False where the profiler had ended already.

        Raises:
            TimedOut: The traces are still being written.
        """
        reply = self.transport.post("/stop_profile", {}, timeout_s=timeout_s, key=self.admin_key)
        return reply.status == 200

    def _ours(self, kind: type[_Document], reply: Reply, path: str) -> _Document | None:
        if reply.status == 404:
            return None
        if reply.status != 200:
            if isinstance(reply.value, dict) and "error" in reply.value:
                raise FastfillError(
                    f"the server refused it: {_message(reply)}",
                    where=f"{self.url}{path} (HTTP {reply.status})",
                    next_step="look at the server's log, and at the disk and the rights of its FASTFILL_STATE_DIR",
                )
            raise _strange(self.url + path, f"answered {_describe(reply)}")
        return _read(kind, reply.value, self.url + path)


def no_plugin(url: str) -> FastfillError:
    """The server has no /fastfill routes."""
    return FastfillError(
        "the fastfill plugin is not attached to this server",
        where=f"{url}/fastfill/status (HTTP 404)",
        next_step="start it with fastfill serve, in an environment where the fastfill distribution is installed, "
        "and with SGLANG_PLUGINS unset or naming fastfill",
    )


def _read(kind: type[_Document], value: Any, where: str) -> _Document:
    from pydantic import ValidationError

    try:
        return kind.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the document"
        raise _strange(where, f"is not the document we know: {place}: {first['msg']}") from error


def _strange(where: str, what: str) -> FastfillError:
    return FastfillError(
        f"the server's answer {what}",
        where=where,
        next_step="use the same fastfill version on both sides (fastfill --version), with no proxy in between",
        code=ExitCode.CHECK_FAILED,
    )


def _message(reply: Reply) -> str:
    value = reply.value
    if isinstance(value, dict):
        error = value.get("error", value)
        value = error.get("message") or error.get("detail") if isinstance(error, dict) else error
        if value:
            return str(value)[:300]
    return reply.text.strip().replace("\n", " ")[:200]


def _describe(reply: Reply) -> str:
    if 300 <= reply.status < 400:
        return f"HTTP {reply.status}, a redirect to {reply.location or 'nowhere'}"
    if reply.value is not None:
        return f"HTTP {reply.status} with JSON of another kind"
    kind = "an HTML page" if "<html" in reply.text[:500].lower() else "text that is no JSON"
    return f"HTTP {reply.status} with {kind}"
