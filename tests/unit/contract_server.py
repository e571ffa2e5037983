"""An HTTP server that speaks the proof's contract, with knobs for what may be wrong with a real one.

The real server runs in the lab; this one shows states that the lab cannot be put in: a rank that lies, a load balancer.
"""

from __future__ import annotations

import gzip
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

ADMIN_PATHS = ("/fastfill/path", "/start_profile", "/stop_profile", "/abort_request")
KERNEL = "_ZN5aiter38fmha_fwd_hd256_fp8_causal_group_gfx950E"
HOOK = "aiter.flash_attn_varlen_fp8_pertensor_func"
FN = "flash_attn_varlen_fp8_pertensor_func"


@dataclass
class Stranger:
    """Another request that lands in the probe's pass."""

    rid: str = "somebody-else"
    prefix: int = 0
    extend: int = 40


@dataclass
class ContractServer:
    """State of the pretended server; tests set fields, then run a verb against ``url``."""

    http: HTTPServer
    tp: int = 1
    layers: int = 2
    plugin: bool = True
    metrics: bool = True
    reason: str = ""
    reasons_by_rank: dict[int, str] = field(default_factory=dict)
    reported_ranks: int | None = None
    rank_without_pass: int | None = None
    calls_per_pass: dict[int, int] = field(default_factory=dict)
    kernel: str = "asm"
    head_dim: int = 256
    count_in_metrics: float = 1.0
    strangers: list[Stranger | None] = field(default_factory=list)
    own_prefix: list[int] = field(default_factory=list)
    chunk: int = -1
    context_len: int = 8192
    allow_fallback: bool = True
    control_ignored: bool = False
    control_reason: str = "forced_fallback"
    key: str = ""
    admin_key: str = ""
    path_error: str = ""
    generate_status: int = 200
    refusal: str = "no"
    gpu: str = "AMD Instinct MI355X"
    traced: float = 1.0
    trace_bytes: int | None = None
    profile_status: int = 200
    profiling: tuple[str, Counter[int]] | None = None
    whole: int = 1000
    meet: bool = True
    keys: set[str] = field(default_factory=set)
    prompt_rate: float = 0.0
    started: float = field(default_factory=time.monotonic)
    chat_status: int = 200
    shift: float = 0.0
    lost: int = 0
    retrieves: bool = True
    top: bool = True
    hang: Callable[[], object] | None = None
    freeze: threading.Event = field(default_factory=threading.Event)
    release: threading.Event = field(default_factory=threading.Event)
    silent: dict[str, int] = field(default_factory=dict)
    """How often a path answers before it hangs until ``release``."""
    remember: bool = True
    server_info: dict[str, Any] = field(default_factory=dict)
    status_extra: dict[str, Any] = field(default_factory=dict)
    path: dict[str, Any] = field(default_factory=lambda: {"path": "on", "who": None, "why": None, "when": None})
    path_sticks: bool = True
    pids: Callable[[int], int] = lambda rank: 100 + rank
    background: Callable[[], None] | None = None
    requests: list[dict[str, Any]] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)
    ring: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    calls_total: Counter[tuple[int, str, str, int]] = field(default_factory=Counter)
    skips_total: Counter[tuple[int, str]] = field(default_factory=Counter)
    number: int = 0

    def __post_init__(self) -> None:
        for method, path, handler in (
            ("GET", "/server_info", self._server_info),
            ("GET", "/fastfill/status", self._status),
            ("GET", "/fastfill/passes", self._passes),
            ("POST", "/fastfill/path", self._set_path),
            ("GET", "/metrics", self._metrics),
            ("POST", "/generate", self._generate),
            ("POST", "/v1/chat/completions", self._chat),
            ("POST", "/tokenize", lambda _: {"tokens": list(range(40, 90)), "count": 50}),
            ("POST", "/abort_request", self._abort),
            ("POST", "/start_profile", self._start_profile),
            ("POST", "/stop_profile", self._stop_profile),
        ):
            self.http.expect_request(path, method=method).respond_with_handler(self._guard(handler))

    @property
    def url(self) -> str:
        return self.http.url_for("").rstrip("/")

    def prefill(self, rid: str, tokens: int, *, reason: str = "", stranger: Stranger | None = None) -> None:
        """One request's passes on every rank."""
        sizes = [tokens]
        if 0 < self.chunk < tokens:
            sizes = [self.chunk] * (tokens // self.chunk) + ([tokens % self.chunk] if tokens % self.chunk else [])
        start = self.own_prefix.pop(0) if self.own_prefix else 0
        for extend in sizes:
            self.number += 1
            for rank in range(self.tp):
                if rank != self.rank_without_pass:
                    self._one_pass(rank, rid, start, min(extend, tokens - start), reason, stranger)
            start += extend

    def _one_pass(self, rank: int, rid: str, prefix: int, extend: int, reason: str, stranger: Stranger | None) -> None:
        stopped = reason or self.reasons_by_rank.get(rank, "") or ("prefix_chunk" if prefix else "")
        made = self.calls_per_pass.get(rank, self.layers)
        left = self.layers if stopped else 0
        if stopped:
            calls = [{"fn": "mha_batch_prefill_func", "kernel": "ck", "head_dim": self.head_dim, "count": self.layers}]
        else:
            calls = [{"fn": FN, "kernel": self.kernel, "head_dim": self.head_dim, "count": made}]
        for call in calls:
            self.calls_total[rank, call["fn"], call["kernel"], call["head_dim"]] += call["count"]
        if stopped:
            self.skips_total[rank, stopped] += self.layers
        entry = {
            "pass": self.number,
            "time": 1.0,
            "mode": "EXTEND",
            "draft": False,
            "rids": [rid] + ([stranger.rid] if stranger else []),
            "prefix": [prefix] + ([stranger.prefix] if stranger else []),
            "extend": [extend] + ([stranger.extend] if stranger else []),
            "calls": calls,
            "reasons": {stopped: left} if stopped else {},
        }
        if self.remember:
            self.ring.setdefault(rank, []).append(entry)

    def _guard(self, handler: Callable[[Request], Any]) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            open_paths = request.path.startswith("/metrics")
            turns = request.method == "POST" and request.path in ADMIN_PATHS
            key = self.admin_key if turns and self.admin_key else self.key
            if key and not open_paths and request.headers.get("Authorization") != f"Bearer {key}":
                return Response(json.dumps({"error": "Unauthorized"}), 401, content_type="application/json")
            if self.freeze.is_set():
                self.release.wait(30)
            if request.path in self.silent:
                self.silent[request.path] -= 1
                if self.silent[request.path] < 0:
                    self.release.wait(30)
            value = handler(request)
            if isinstance(value, Response):
                return value
            return Response(json.dumps(value), content_type="application/json")

        return answer

    def _server_info(self, _: Request) -> Any:
        return {
            "version": "0.5.16",
            "model_path": "models/tiny",
            "tp_size": self.tp,
            "pp_size": 1,
            "dp_size": 1,
            "nnodes": 1,
            "chunked_prefill_size": self.chunk,
            "api_key": "never-print-me",
            **self.server_info,
        }

    def _status(self, _: Request) -> Any:
        if not self.plugin:
            return Response(json.dumps({"detail": "Not Found"}), 404, content_type="application/json")
        ranks = range(self.tp if self.reported_ranks is None else self.reported_ranks)
        return {
            "schema": "fastfill.status/1",
            "version": "0.1.0",
            "path": self.path,
            "ranks": [
                {
                    "rank": {"pp": 0, "dp": 0, "tp": rank},
                    "pid": self.pids(rank),
                    "sglang": "0.5.16",
                    "patched": True,
                    "build": "x",
                    "flag": True,
                    "near_miss": [],
                    "rival": "unset",
                    "backend": "AiterAttnBackend",
                    "hooks": {HOOK: True},
                    "deployment": {},
                    "model": {"attention_layers": self.layers, "num_hidden_layers": self.layers, "head_dim": 256},
                    "forced_fallback_allowed": self.allow_fallback,
                    "context_len": self.context_len,
                    **self.status_extra,
                }
                for rank in ranks
            ],
        }

    def _passes(self, request: Request) -> Any:
        wanted = request.args.get("rid", "")
        return {
            "schema": "fastfill.passes/1",
            "ranks": [
                {
                    "rank": {"pp": 0, "dp": 0, "tp": rank},
                    "pid": self.pids(rank),
                    "passes": [
                        one for one in self.ring.get(rank, []) if any(rid.startswith(wanted) for rid in one["rids"])
                    ],
                }
                for rank in range(self.tp)
            ],
        }

    def _set_path(self, request: Request) -> Any:
        if not self.plugin:
            return Response("{}", 404, content_type="application/json")
        if self.path_error:
            return Response(json.dumps({"error": self.path_error}), 500, content_type="application/json")
        wanted = {**request.get_json(), "when": "2026-01-02T03:04:05+00:00"}
        if self.path_sticks:
            self.path = wanted
        return wanted

    def _metrics(self, _: Request) -> Any:
        if not self.metrics:
            return Response("Not Found", 404)
        lines = [
            "# HELP sglang:prompt_tokens_total prompts",
            "# TYPE sglang:prompt_tokens_total counter",
            f"sglang:prompt_tokens_total {7.0 + self.prompt_rate * (time.monotonic() - self.started)}",
            "# HELP fastfill:prefill_attention_calls_total calls",
            "# TYPE fastfill:prefill_attention_calls_total counter",
        ]
        for (rank, fn, kernel, dim), count in self.calls_total.items():
            lines.append(
                f'fastfill:prefill_attention_calls_total{{fn="{fn}",kernel="{kernel}",head_dim="{dim}",draft="false",'
                f'pp_rank="0",dp_rank="0",tp_rank="{rank}"}} {count * self.count_in_metrics}'
            )
        for name in ("tokens", "attention_work"):
            lines.append(f"# TYPE fastfill:prefill_{name}_total counter")
            for kernel, reason, value in (("asm", "", 300.0), ("ck", "prefix_radix", 100.0)):
                lines.append(
                    f'fastfill:prefill_{name}_total{{kernel="{kernel}",reason="{reason}",pp_rank="0",dp_rank="0",'
                    f'tp_rank="0"}} {value}'
                )
        return Response("\n".join(lines) + "\n", content_type="text/plain; version=0.0.4")

    def _fired(self) -> Counter[int]:
        found: Counter[int] = Counter()
        for (rank, _, kernel, dim), made in self.calls_total.items():
            found[rank] += made if (kernel, dim) == ("asm", 256) else 0
        return found

    def _start_profile(self, request: Request) -> Any:
        if self.profile_status != 200:
            return Response("no", self.profile_status)
        self.profiling = request.get_json()["output_dir"], self._fired()
        return Response("Start profiling.\n")

    def _stop_profile(self, _: Request) -> Any:
        """One trace a rank, as ROCm writes it, with ``traced`` kernels a call; cut after ``trace_bytes``."""
        if self.profiling is None:
            return Response("not in progress", 500)
        place, before = Path(self.profiling[0]), self.profiling[1]
        place.mkdir(parents=True)
        for rank in range(self.tp):
            ran = int((self._fired()[rank] - before[rank]) * self.traced)
            event = {"ph": "X", "cat": "kernel", "name": KERNEL, "pid": 0, "tid": 3, "ts": 1.5, "dur": 2.5, "args": {}}
            trace = {"deviceProperties": [{"id": 0, "name": self.gpu}], "traceEvents": [event] * ran}
            content = gzip.compress(json.dumps(trace).encode())[: self.trace_bytes]
            (place / f"1700000000.5-TP-{rank}.trace.json.gz").write_bytes(content)
        self.profiling = None
        return Response("Stop profiling.\n")

    def _abort(self, request: Request) -> Any:
        self.aborted.append(request.get_json()["rid"])
        return {}

    def _generate(self, request: Request) -> Any:
        body = request.get_json()
        self.requests.append(body)
        if self.hang:
            self.hang()
        if self.generate_status != 200:
            return Response(json.dumps({"error": {"message": self.refusal}}), self.generate_status)
        if self.background:
            self.background()
        if isinstance(body["rid"], list):
            return self._batch(body)
        rid, tokens = body["rid"], len(body["input_ids"])
        control = rid.startswith("fastfill-fallback-")
        reason = self.control_reason if control and not self.control_ignored else self.reason
        stranger = self.strangers.pop(0) if self.strangers else None
        if stranger and stranger.prefix and not reason:
            reason = "prefix_radix"
        self.prefill(rid, tokens, reason=reason, stranger=stranger)
        meta = {"id": rid, "prompt_tokens": tokens, "finish_reason": {"type": "length"}}
        new = body["sampling_params"]["max_new_tokens"]
        if body.get("return_logprob") and self.top:
            meta["output_top_logprobs"] = [self._place(0.0 if control else self.shift) for _ in range(new)]
        return {"text": "x", "output_ids": [7] * new, "meta_info": meta}

    def _batch(self, body: dict[str, Any]) -> Any:
        """Prompts of one request: the first ``whole`` of them alone in their passes, the rest later chunks.

        One that repeats an ``extra_key`` has a prefix, and takes the others off the path if they ``meet``.
        """
        if any(key in self.keys for key in body["extra_key"]) and self.meet:
            (fresh,) = [
                (rid, ids)
                for rid, ids, key in zip(body["rid"], body["input_ids"], body["extra_key"], strict=True)
                if key not in self.keys
            ]
            reason = "" if self.control_ignored else "prefix_radix"
            self.prefill(fresh[0], len(fresh[1]), reason=reason, stranger=Stranger(prefix=240, extend=16))
            return [{"text": "x", "meta_info": {"id": rid, "prompt_tokens": 1}} for rid in body["rid"]]
        self.keys |= set(body["extra_key"])
        for number, (rid, ids) in enumerate(zip(body["rid"], body["input_ids"], strict=True)):
            self.prefill(rid, len(ids), reason=self.reason if number < self.whole else "prefix_chunk")
        return [{"text": "x", "meta_info": {"id": rid, "prompt_tokens": 1}} for rid in body["rid"]]

    @staticmethod
    def _place(shift: float) -> list[list[Any]]:
        if shift != shift:
            return [[-6.9, token, None] for token in range(20)]
        return [[-0.1 * token - 1 - shift * (token % 2), token, None] for token in range(20)]

    def _chat(self, request: Request) -> Any:
        body = request.get_json()
        self.requests.append(body)
        if self.chat_status != 200:
            return Response(json.dumps({"error": {"message": "no chat template"}}), self.chat_status)
        rid, text = body["rid"], body["messages"][0]["content"]
        control = rid.startswith("fastfill-fallback-")
        self.prefill(rid, len(text), reason=self.control_reason if control else self.reason)
        codes = re.findall(r"gate is (\d+)", text)
        known = codes if control or not self.lost else codes[: -self.lost]
        return {
            "choices": [{"message": {"role": "assistant", "content": ", ".join(known) if self.retrieves else "bla"}}],
            "usage": {"prompt_tokens": len(text)},
        }
