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
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import httpx

from fastfill.errors import NotReadyError
from fastfill.lab import packages, prepare, server, stacks
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


@dataclass(frozen=True)
class Row:
    """One case: what ``explain`` says, what the server did, and what ``prove`` said of it.

    Attributes:
        case: The case.
        predicted: ``explain``'s verdict.
        reason: What decided it.
        observed: What the server did.
        proof: ``prove``'s verdict, reason and control; empty where no server came up.
    """

    case: Case
    predicted: str
    reason: str
    observed: Observed
    proof: dict[str, str]

    @property
    def agrees(self) -> bool:
        """Whether the server did what was predicted."""
        return self.predicted == self.observed.verdict


def run(case: Case, port: int, *, proven: bool = True) -> Row:
    """Predict, start the server, look, prove if that is wanted, stop."""
    folder = _model_folder(case.model)
    predicted = predict(case, folder)
    proof: dict[str, str] = {}
    try:
        with server.start(replace(case.spec(), port=port)) as running:
            seen = observe(running, _truth(case.model))
            proof = prove(running.url) if proven else {}
    except NotReadyError as error:
        seen = died("\n".join(error.lines()))
    return Row(case, predicted["verdict"], predicted["reason"], seen, proof)


def run_all(cases: Sequence[Case], ports: Sequence[int], proven: Collection[Case] | None = None) -> list[Row]:
    """Every case, as many at a time as there are ports; those in ``proven`` are proven too, None for all."""
    free = list(ports)
    for model in {case.model for case in cases}:
        _truth(model)  # once, before two servers ask for it at the same time

    def one(case: Case) -> Row:
        port = free.pop()
        try:
            return run(case, port, proven=proven is None or case in proven)
        finally:
            free.append(port)

    with ThreadPoolExecutor(len(ports)) as pool:
        return list(pool.map(one, cases))


def table(rows: Sequence[Row]) -> str:
    """Predicted beside observed, a line a case."""
    head = f"{'':38} {'explain':12} {'the server':12} {'kernels':26} prove"
    lines = [head]
    for row in rows:
        kernels = row.observed.error[:26] or " ".join(f"{name} {n}" for name, n in sorted(row.observed.kernels.items()))
        proof = " ".join(filter(None, (row.proof.get("verdict", ""), row.proof.get("reason", ""))))
        mark = "" if row.agrees else "   <-- DISAGREE"
        lines.append(
            f"{row.case.name:38} {row.predicted:12} {row.observed.verdict:12} {kernels:26} {proof}{mark}".rstrip()
        )
    return "\n".join(lines)


def prove(url: str) -> dict[str, str]:
    """What ``fastfill prove`` says of a server."""
    argv = [sys.executable, "-m", "fastfill", "prove", "--url", url, "--json", "--prompt-tokens", "300"]
    answer = subprocess.run(argv, capture_output=True, text=True, check=False)
    if not answer.stdout:
        return {"verdict": "none", "reason": answer.stderr.strip()[-200:]}
    document = json.loads(answer.stdout)
    return {
        "verdict": document["verdict"],
        "reason": (document["reason"] or {}).get("id", ""),
        "control": document["control"]["status"],
        "answers": document["answers"]["status"],
    }


@cache
def _model_folder(model: str) -> Path:
    python, _ = prepare.interpreter_of(stacks.DEFAULT)
    return prepare.model_folder(model, python, packages.link())


@cache
def _truth(model: str) -> list[list[float]]:
    argv = ["-m", "fastfill.lab.reference", str(_model_folder(model))]
    truth: list[list[float]] = json.loads(prepare.run_python(argv, stdin=json.dumps(prompts())))
    return truth


def predict(case: Case, model_dir: Path) -> dict[str, Any]:
    """What ``fastfill explain`` says of the case, as its JSON document."""
    stack = stacks.find(case.stack)
    which = ["--stack", case.stack] if stack.patched else ["--sglang", stack.sglang]
    words = ["--model", str(model_dir), *which, "--aiter", AITER, "--env", f"{FLAG}=1", "--env", f"{FORCED}=1"]
    argv = [sys.executable, "-m", "fastfill", "explain", *words, "--json", "--", "--kv-cache-dtype", case.kv, *FLAGS]
    answer = subprocess.run([*argv, "--page-size", "16"], capture_output=True, text=True, check=False)
    if not answer.stdout:
        raise RuntimeError(answer.stderr)
    return dict(json.loads(answer.stdout))


def died(error: str) -> Observed:
    """A server that did not come up: the words of aiter's that killed it, or the last line."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    lines = [line.removeprefix("| ") for line in lines]
    words = [line for line in lines if "invalid argument for" in line] or [line for line in lines if "Error" in line]
    return Observed(verdict="crashes", error=(words or lines or [""])[-1][:200])


def observe(server: LabServer, truth: list[list[float]]) -> Observed:
    """Send the requests and read what they did.

    Args:
        server: A fresh one.
        truth: Hugging Face's log probabilities of :func:`prompts`.
    """
    seen = Observed()
    short, long = prompts()
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
