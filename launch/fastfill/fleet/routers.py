"""Keeping routers in step with what is proven: a restarted router has forgotten all its workers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from fastfill.fleet import web


class Worker(NamedTuple):
    """A worker as a router lists it."""

    id: str
    url: str
    healthy: bool


class Step(NamedTuple):
    """What brings a router in step: ``add`` with a URL, or ``remove`` with a worker's id."""

    verb: str
    url: str
    id: str = ""


def plan(mine: dict[str, bool], listed: list[Worker]) -> list[Step]:
    """What to tell a router. Pure.

    Args:
        mine: URLs of this host's servers, to whether they should get requests. Others' URLs are none of its business.
        listed: The router's workers.
    """
    there = {worker.url.rstrip("/"): worker for worker in listed}
    steps = []
    for url, wanted in sorted(mine.items()):
        found = there.get(url.rstrip("/"))
        if wanted and found is None:
            steps.append(Step("add", url))
        elif not wanted and found is not None:
            steps.append(Step("remove", url, found.id))
    return steps


def workers(router: str, key: str = "") -> list[Worker] | None:
    """A router's workers, None where it does not answer, or not with them."""
    return _listed(web.ask(f"{router}/workers", key=key))


def _listed(reply: web.Reply) -> list[Worker] | None:
    listed = reply.value.get("workers") if reply.status == 200 and isinstance(reply.value, dict) else None
    if not isinstance(listed, list):
        return None
    return [
        Worker(str(one.get("id", "")), str(one.get("url", "")), bool(one.get("is_healthy", False)))
        for one in listed
        if isinstance(one, dict)
    ]


def reconcile(router: str, mine: dict[str, bool], key: str = "", server_key: str = "") -> list[str]:
    """Bring one router in step; returns what was done, or why it could not be.

    Args:
        router: Its URL.
        mine: As :func:`plan` takes it.
        key: The router's own key.
        server_key: The key with which the router asks the servers.
    """
    listed = workers(router, key)
    if listed is None:
        return [f"{router}: does not answer"]
    done = []
    for step in plan(mine, listed):
        if step.verb == "add":
            body = {"url": step.url, **({"api_key": server_key} if server_key else {})}
            reply = web.ask(f"{router}/workers", method="POST", body=body, key=key)
        else:
            reply = web.ask(f"{router}/workers/{step.id}", method="DELETE", key=key)
        done.append(f"{router}: {step.verb} {step.url}" + ("" if reply.status in (200, 202) else f": {reply.status}"))
    return done


def settled(routers: list[str], url: str, wanted: bool, key: str = "") -> tuple[bool, str]:
    """Whether every router that answers sends requests to a server, or none does; and what is missing.

    A router that is not there sends nothing to anybody. One that refuses, or is slow to answer, may well.
    """
    for router in routers:
        reply = web.ask(f"{router}/workers", key=key)
        listed = _listed(reply)
        if listed is None:
            if reply.status == 0:
                continue
            return False, f"{router} {_how(reply)}: whom it sends requests to is not known"
        found = [worker for worker in listed if worker.url.rstrip("/") == url.rstrip("/")]
        if wanted and not any(worker.healthy for worker in found):
            return False, f"{router} does not hold {url} for healthy"
        if not wanted and found:
            return False, f"{router} still has {url}"
    return True, ""


def _how(reply: web.Reply) -> str:
    if reply.status == web.UNTRUSTED:
        return f"is not trusted by this host ({reply.text})"
    return "is slow to answer" if reply.status == web.SLOW else f"answers HTTP {reply.status}"


def wait(ready: Callable[[], tuple[bool, str]], seconds: float, every: float = 0.3) -> tuple[bool, str]:
    """Ask until it is so; returns whether it came to be, and what was missing at last."""
    end = time.monotonic() + seconds
    while True:
        so, missing = ready()
        if so or time.monotonic() >= end:
            return so, missing
        time.sleep(every)
