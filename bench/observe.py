"""What a real lab server does with prompts, in the words of ``fastfill explain``: predicted beside observed.

One server is asked for everything: a fresh prompt, a prompt of three chunks, one with a cached prefix, one that asks
for the fallback. What counts is which kernels ran, by the witness, and whether the answers are right.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from fastfill.lab.server import LabServer
from fastfill.lab.spec import LabSpec

AITER = "c16d44b93a"
"""The commit whose dispatch rules the emulator has."""
FLAG = "SGLANG_AITER_FMHA_FP8_ASM"
FORCED = "FASTFILL_ALLOW_FORCED_FALLBACK"
CHUNK = 512
FLAGS = ("--chunked-prefill-size", str(CHUNK), "--max-prefill-tokens", str(CHUNK))
RIGHT = 0.2
"""Mean |Δlogprob| against Hugging Face in fp32, up to which an answer is right: fp8 alone gives about 0.09."""


@dataclass(frozen=True)
class Case:
    """One server of the comparison: a stack, a model and a KV cache.

    Attributes:
        stack: A stack of the lab.
        model: A variant of ``fastfill.lab.models``.
        kv: ``--kv-cache-dtype``.
    """

    stack: str
    model: str = "dense"
    kv: str = "fp8_e4m3"

    @property
    def name(self) -> str:
        """For tables."""
        return f"{self.stack} {self.model}{'' if self.kv == 'fp8_e4m3' else ' bf16-kv'}"

    def spec(self) -> LabSpec:
        """The server to start; refusals of ``serve`` are accepted, it is they that are put to the test."""
        flags = (*FLAGS, "--kv-cache-dtype", self.kv)
        return LabSpec(stack=self.stack, model=self.model, flags=flags, allow=("all",))


@dataclass
class Observed:
    """What the server did.

    Attributes:
        verdict: fires, conditional, never, crashes or wrong, as ``explain`` means them.
        passes: For each kind of request, whether its passes took the path.
        delta: For each kind of request, mean |Δlogprob| against Hugging Face in fp32.
        kernels: Attention calls by kernel and head dim, over the passes of these requests.
        coverage: Share of the attention work of these requests that took the path.
        error: What it died of.
    """

    verdict: str = ""
    passes: dict[str, list[bool]] = field(default_factory=dict)
    delta: dict[str, float] = field(default_factory=dict)
    kernels: dict[str, int] = field(default_factory=dict)
    coverage: float | None = None
    error: str = ""


def predict(case: Case, model_dir: Path) -> dict[str, Any]:
    """What ``fastfill explain`` says of the case, as its JSON document."""
    patched = not case.stack.endswith("-unpatched") and _is_patched(case.stack)
    which = ["--stack", case.stack] if patched else ["--sglang", _version(case.stack)]
    words = ["--model", str(model_dir), *which, "--aiter", AITER, "--env", f"{FLAG}=1", "--env", f"{FORCED}=1"]
    argv = [sys.executable, "-m", "fastfill", "explain", *words, "--json", "--", "--kv-cache-dtype", case.kv, *FLAGS]
    answer = subprocess.run([*argv, "--page-size", "16"], capture_output=True, text=True, check=False)
    if not answer.stdout:
        raise RuntimeError(answer.stderr)
    return dict(json.loads(answer.stdout))


def _is_patched(stack: str) -> bool:
    from fastfill.lab import stacks

    return stacks.find(stack).patched


def _version(stack: str) -> str:
    return stack.removeprefix("sglang-").removesuffix("-unpatched")


def died(error: str) -> Observed:
    """A server that did not come up: the words of aiter's that killed it, or the last line."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    words = [line for line in lines if "invalid argument for" in line] or [line for line in lines if "Error" in line]
    return Observed(verdict="crashes", error=(words or lines or [""])[-1][:200])


def observe(server: LabServer, truth: list[list[float]] | None = None) -> Observed:
    """Send the requests and read what they did.

    Args:
        server: A fresh one.
        truth: Hugging Face's log probabilities of :func:`prompts`; asked for here if None.
    """
    seen = Observed()
    short, long = prompts()
    if truth is None:
        truth = server.reference_logprobs([short, long])
    kinds = {"fresh": (short, truth[0]), "chunks": (long, truth[1])}
    ran: list[dict[str, Any]] = []
    with httpx.Client(base_url=server.url, timeout=120, trust_env=False) as http:
        for kind, (ids, expected) in kinds.items():
            ran += _note(seen, kind, http, ids, expected)
        # Asking for a prompt's logprobs would keep it off the cache.
        warm = _random(300)
        _send(http, warm, f"warm-{uuid.uuid4().hex}")
        ran += _note(seen, "cached prefix", http, warm, None)
        forced = _send(http, _random(200), f"fastfill-fallback-{uuid.uuid4().hex}")
        seen.passes["fallback asked for"] = [_fired(one) for one in forced]
    for one in ran:
        for call in one["calls"]:
            name = f"{call['kernel']}/{call['head_dim']}"
            seen.kernels[name] = seen.kernels.get(name, 0) + call["count"]
    spent = sum(_work(one) for one in ran)
    seen.coverage = round(sum(_work(one) for one in ran if _fired(one)) / spent, 4)
    seen.verdict = _verdict(seen)
    return seen


def prompts() -> tuple[list[int], list[int]]:
    """One of one chunk and one of three, the same each time: the reference is computed once a model."""
    return _random(200, seed=3), _random(2 * CHUNK + 176, seed=4)


def _verdict(seen: Observed) -> str:
    fired = [one for passes in seen.passes.values() for one in passes]
    if any(fired) and any(delta > RIGHT for delta in seen.delta.values()):
        return "wrong"
    if not any(fired):
        return "never"
    return "fires" if all(fired) else "conditional"


def _note(
    seen: Observed, kind: str, http: httpx.Client, ids: list[int], expected: list[float] | None
) -> list[dict[str, Any]]:
    rid = f"{kind.replace(' ', '-')}-{uuid.uuid4().hex}"
    options: dict[str, Any] = {} if expected is None else {"return_logprob": True, "logprob_start_len": 0}
    passes = _send(http, ids, rid, seen if expected is not None else None, kind, expected, **options)
    seen.passes[kind] = [_fired(one) for one in passes]
    return passes


def _send(
    http: httpx.Client,
    ids: list[int],
    rid: str,
    seen: Observed | None = None,
    kind: str = "",
    expected: list[float] | None = None,
    **options: Any,
) -> list[dict[str, Any]]:
    body = {"input_ids": ids, "rid": rid, "sampling_params": {"temperature": 0, "max_new_tokens": 1}, **options}
    answer = http.post("/generate", json=body)
    answer.raise_for_status()
    if seen is not None and expected is not None:
        given = [entry[0] for entry in answer.json()["meta_info"]["input_token_logprobs"][1:]]
        apart = [abs(a - b) for a, b in zip(given, expected, strict=True)]
        seen.delta[kind] = round(sum(apart) / len(apart), 3)
    ranks = http.get("/fastfill/passes", params={"rid": rid}).json()["ranks"]
    return [one for rank in ranks for one in rank["passes"]]


def _fired(one: dict[str, Any]) -> bool:
    calls = one["calls"]
    return bool(calls) and all((call["kernel"], call["head_dim"]) == ("asm", 256) for call in calls)


def _work(one: dict[str, Any]) -> float:
    return float(sum(((p + e) ** 2 - p**2) / 2 for p, e in zip(one["prefix"], one["extend"], strict=True)))


def _random(length: int, seed: int | None = None) -> list[int]:
    generator = random.Random(seed) if seed is not None else random.SystemRandom()
    return [generator.randrange(900) for _ in range(length)]


def reference_model(model: str) -> str:
    """The variant whose weights a model has, as Hugging Face reads them: scales of the KV cache change no weight."""
    return "dense" if model == "dense-scales" else model
