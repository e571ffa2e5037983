"""Looking at many servers at once, from one host: who serves now, and what a canary's traffic says."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fastfill.fleet import routers, soak, web

AT_ONCE = 64


def metrics(urls: list[str]) -> dict[str, str]:
    """URL to its /metrics, for those that answer."""

    def one(url: str) -> tuple[str, str]:
        reply = web.ask(f"{url}/metrics/", timeout=10)
        return url, reply.text if reply.status == 200 else ""

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return {url: text for url, text in pool.map(one, urls) if text}


def serving(urls: list[str], asked: list[str], key: str = "") -> list[str]:
    """The servers that answer and that, where there are routers, every router that answers holds for healthy."""
    there = list(metrics(urls))
    for router in asked:
        listed = routers.workers(router, key)
        if listed is None:
            continue
        healthy = {worker.url.rstrip("/") for worker in listed if worker.healthy}
        there = [url for url in there if url.rstrip("/") in healthy]
    return there


def watch(
    canary: list[str],
    others: list[str],
    limits: soak.Limits,
    *,
    soak_s: float,
    timeout_s: float,
    every: float = 10.0,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Any]:
    """Watch a canary's real traffic until it is judged.

    Args:
        canary: Its servers.
        others: Servers of the last release.
        limits: How much worse it may be.
        soak_s: How long it must serve.
        timeout_s: After so long without enough requests it counts as bad: what cannot be judged does not go on.
        every: Seconds between looks.
        sleep: For tests.

    Returns:
        :func:`soak.judge`'s document of the worst canary.
    """
    begun = time.monotonic()
    first = metrics([*canary, *others])
    while True:
        sleep(every)
        elapsed = time.monotonic() - begun
        now = metrics([*canary, *others])
        beside = [soak.served(first.get(url, ""), now[url]) for url in others if url in now]
        judged = []
        for url in canary:
            if url not in now:
                judged.append({"state": "bad", "why": ["it does not answer any more"], "canary": {}})
                continue
            numbers = soak.served(first.get(url, ""), now[url])
            judged.append(soak.judge(numbers, beside, limits, elapsed_s=elapsed, soak_s=soak_s))
        worst = min(judged, key=lambda one: ("bad", "not_yet", "good").index(one["state"]))
        if worst["state"] != "not_yet":
            return worst | {"elapsed_s": round(elapsed)}
        if elapsed >= timeout_s:
            return worst | {"state": "bad", "elapsed_s": round(elapsed)}
