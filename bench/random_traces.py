"""Small random traces, and how to send them to a lab server: requests with shared beginnings, at random times."""

from __future__ import annotations

import asyncio
import contextlib
import random
import uuid
from typing import Any, NamedTuple

import httpx


class Sent(NamedTuple):
    """One request of a trace.

    Attributes:
        at: Seconds after the trace's start.
        ids: The prompt's token ids.
        new: Tokens to answer at most.
        ignore_eos: Whether it answers exactly so many.
    """

    at: float
    ids: list[int]
    new: int
    ignore_eos: bool


def trace(
    seed: int, *, requests: int = 14, longest: int = 1500, gap: float = 0.1, new: int = 24, fixed: float = 0.6
) -> list[Sent]:
    """A trace of its own for each seed; every third request starts as an earlier one does, some are repeats.

    Args:
        longest: Tokens of a prompt at most.
        gap: Mean seconds between two arrivals that are not at once.
        new: Tokens of an answer at most.
        fixed: How probable it is that all of them set ignore_eos; else three of ten do.
    """
    generator = random.Random(seed)

    def fresh(length: int) -> list[int]:
        return [generator.randrange(900) for _ in range(length)]

    shared = [fresh(generator.randrange(32, longest // 2)) for _ in range(3)]
    sent: list[Sent] = []
    at = 0.0
    eos = generator.random() < fixed
    for _ in range(requests):
        draw = generator.random()
        if draw < 0.12 and sent:
            ids = list(generator.choice(sent).ids)
        elif draw < 0.4:
            beginning = generator.choice(shared)
            ids = beginning[: generator.randrange(1, len(beginning) + 1)] + fresh(generator.randrange(1, longest // 2))
        else:
            ids = fresh(int(longest ** generator.uniform(0.3, 1.0)) + 1)
        if generator.random() < 0.5:
            at += generator.expovariate(1 / gap) if gap else 0.0
        sent.append(Sent(at, ids, generator.randrange(1, new + 1), eos or generator.random() < 0.3))
    return sent


def send(url: str, requests: list[Sent], name: str = "") -> list[dict[str, Any]]:
    """Send a trace at its times; returns the answers, in the trace's order. Request ids are ``<name>-<number>``."""
    name = name or uuid.uuid4().hex[:8]

    async def one(client: httpx.AsyncClient, number: int, request: Sent) -> dict[str, Any]:
        body = {
            "input_ids": request.ids,
            "rid": f"{name}-{number}",
            "sampling_params": {
                "temperature": 0,
                "max_new_tokens": request.new,
                "ignore_eos": request.ignore_eos,
            },
        }
        answer = await client.post("/generate", json=body)
        answer.raise_for_status()
        return dict(answer.json())

    async def all_of_them() -> list[dict[str, Any]]:
        async with contextlib.AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(httpx.AsyncClient(base_url=url, timeout=300, trust_env=False))
                for _ in requests
            ]
            # What is sent at once is to arrive in the trace's order: each over a connection that is open already, and
            # begun one after another, for timers that are due at once go off in any order.
            await asyncio.gather(*(client.get("/v1/models") for client in clients))
            loop = asyncio.get_running_loop()
            start = loop.time() + 0.05
            begun = []
            for number, (client, request) in enumerate(zip(clients, requests, strict=True)):
                await asyncio.sleep(max(0.0, start + request.at - loop.time()))
                begun.append(asyncio.create_task(one(client, number, request)))
            return list(await asyncio.gather(*begun))

    return asyncio.run(all_of_them())
