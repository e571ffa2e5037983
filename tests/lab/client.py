"""A few words to a lab server, for the tests."""

from __future__ import annotations

import concurrent.futures
import random
import time
import uuid
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from fastfill.lab.server import LabServer


class Client:
    """Requests to one lab server."""

    def __init__(self, server: LabServer) -> None:
        self.http = httpx.Client(base_url=server.url, timeout=300, trust_env=False)

    def generate(
        self,
        ids: list[int] | list[list[int]],
        rid: Any = None,
        new: int = 4,
        ignore_eos: bool = True,
        **options: Any,
    ) -> Any:
        """SGLang's own answer to token ids, greedy."""
        body = {
            "input_ids": ids,
            "sampling_params": {"temperature": 0, "max_new_tokens": new, "ignore_eos": ignore_eos},
            **options,
        }
        if rid is not None:
            body["rid"] = rid
        answer = self.http.post("/generate", json=body)
        answer.raise_for_status()
        return answer.json()

    def tokens(self, ids: list[int], **options: Any) -> list[int]:
        """The greedy continuation."""
        answer = self.generate(ids, **options)
        return list(answer["output_ids"])

    def prompt_logprobs(self, ids: list[int], rid: str | None = None) -> list[float]:
        """Logprob of each prompt token but the first."""
        answer = self.generate(ids, rid=rid, new=1, return_logprob=True, logprob_start_len=0)
        return [entry[0] for entry in answer["meta_info"]["input_token_logprobs"][1:]]

    def passes(self, rid: str) -> list[dict[str, Any]]:
        """The passes of rank 0 that hold a request."""
        ranks = self.http.get("/fastfill/passes", params={"rid": rid}).json()["ranks"]
        return list(ranks[0]["passes"])

    def run(self, ids: list[int], rid: str = "", **options: Any) -> list[dict[str, Any]]:
        """Send a prompt and return its passes."""
        rid = f"{rid}{uuid.uuid4().hex}"
        self.generate(ids, rid=rid, **options)
        return self.passes(rid)

    def together(self, prompts: list[list[int]], rids: list[str], **options: Any) -> str:
        """Send prompts so that the scheduler finds all of them in its queue at once.

        A long prompt keeps it busy while they arrive: an idle scheduler starts with whichever comes first.

        Returns:
            The long prompt's request id.
        """
        first = f"first-{uuid.uuid4().hex}"
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            busy = pool.submit(self.generate, prompt(4096), rid=first, new=1)
            time.sleep(0.2)
            self.generate(prompts, rid=rids, **options)
            busy.result()
        return first

    def counters(self, name: str) -> dict[tuple[tuple[str, str], ...], float]:
        """Samples of one counter by its labels."""
        text = self.http.get("/metrics").text
        return {
            tuple(sorted(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name
        }

    def work(self) -> dict[tuple[str, str], float]:
        """Attention work so far by (kernel, reason)."""
        counted = self.counters("fastfill:prefill_attention_work_total")
        spent: dict[tuple[str, str], float] = {}
        for labels, value in counted.items():
            key = dict(labels)["kernel"], dict(labels)["reason"]
            spent[key] = spent.get(key, 0.0) + value
        return spent


def prompt(length: int, seed: int | None = None) -> list[int]:
    """Random token ids, none of them special; without a seed no cache can know them."""
    generator = random.Random(seed) if seed is not None else random.SystemRandom()
    return [generator.randrange(900) for _ in range(length)]


def work_of(passes: list[dict[str, Any]]) -> dict[tuple[str, str], float]:
    """The attention work of some passes by (kernel, reason), each pass of one kernel and at most one reason."""
    spent: dict[tuple[str, str], float] = {}
    for p in passes:
        (call,) = p["calls"]
        key = (call["kernel"], next(iter(p["reasons"]), ""))
        area = sum(((a + b) ** 2 - a**2) / 2 for a, b in zip(p["prefix"], p["extend"], strict=True))
        spent[key] = spent.get(key, 0) + area * call["count"]
    return spent


def fired(passes: list[dict[str, Any]]) -> list[bool]:
    """For each pass: whether all its attention calls were the assembly kernel at head dim 256."""
    return [
        bool(p["calls"]) and all(c["kernel"] == "asm" and c["head_dim"] == 256 for c in p["calls"]) and not p["reasons"]
        for p in passes
    ]


def reasons(passes: list[dict[str, Any]]) -> list[list[str]]:
    """For each pass: the ids that kept calls off the path."""
    return [list(p["reasons"]) for p in passes]
