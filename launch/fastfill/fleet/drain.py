"""Out of the routers, then wait until nothing runs or waits; a server that stays busy is left alone, never killed."""

from __future__ import annotations

import time
from typing import Any

from fastfill.fleet import numbers, routers, web
from fastfill.fleet.places import Instance

QUIET_LOOKS = 2
"""In a row: a request that a router sent before it forgot the server may still be on its way."""


class Keys:
    """Keys from files on the host; empty where there are none."""

    def __init__(self, instance: Instance) -> None:
        self.server = _key(instance, "api_key")
        self.router = _key(instance, "router_key")


def _key(instance: Instance, name: str) -> str:
    try:
        return (instance.folder / "secrets" / name).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def enter(instance: Instance, seconds: float = 60.0) -> dict[str, Any]:
    """Into every router that answers, and wait until they hold it for healthy."""
    was = instance.in_service()
    instance.serve(True)
    return _bring(instance, True, seconds) | {"changed": not was}


def leave(instance: Instance, seconds: float = 60.0) -> dict[str, Any]:
    """Out of every router that answers."""
    was = instance.in_service()
    instance.serve(False)
    return _bring(instance, False, seconds) | {"changed": was}


def in_step(instance: Instance) -> list[str]:
    """Bring its routers in step with whether it should get requests; returns what was done."""
    settings, keys = instance.settings(), Keys(instance)
    url = str(settings["url"])
    done: list[str] = []
    for router in settings.get("routers", []):
        while True:
            wanted = _wanted(instance)
            done += routers.reconcile(router, {url: wanted}, keys.router, keys.server)
            # A drain that began meanwhile has found nothing to remove: what was added then is ours to take back.
            if _wanted(instance) == wanted:
                break
    return done


def _wanted(instance: Instance) -> bool:
    # What is not proven never gets requests, whatever the flag says.
    return instance.in_service() and instance.link("proven") is not None


def _bring(instance: Instance, wanted: bool, seconds: float) -> dict[str, Any]:
    settings, keys = instance.settings(), Keys(instance)
    listed, url = list(settings.get("routers", [])), str(settings["url"])
    done: list[str] = []

    def step() -> tuple[bool, str]:
        for router in listed:
            done.extend(routers.reconcile(router, {url: wanted}, keys.router, keys.server))
        return routers.settled(listed, url, wanted, keys.router)

    so, missing = routers.wait(step, seconds, every=0.5)
    return {"ok": so, "why": missing, "done": sorted(set(done))}


def drain(instance: Instance, seconds: float, *, back: bool | None = None) -> dict[str, Any]:
    """Take a server out and wait until it is idle.

    A server that is not there has nothing left to lose, and counts as drained; one that is slow to answer does not.

    Args:
        instance: Which server.
        seconds: Until it must be idle.
        back: Whether it goes into the routers again where it is not idle in time; where it was, unless said otherwise.

    Returns:
        ``ok``, ``left`` (requests, None where the server does not say), ``waited_s``, ``why``.
    """
    begun = time.monotonic()
    returns = instance.in_service() if back is None else back
    out = leave(instance, min(seconds, 60.0))
    quiet, left = 0, None
    url = str(instance.settings()["url"])
    while out["ok"]:
        reply = web.ask(f"{url}/metrics/")
        if reply.status == 0:
            break
        left = numbers.load(reply.text) if reply.status == 200 else None
        quiet = quiet + 1 if left == 0 else 0
        if quiet >= QUIET_LOOKS:
            break
        if time.monotonic() - begun >= seconds:
            if returns:
                enter(instance, min(seconds, 60.0))
            busy = "the server does not say how busy it is" if left is None else f"{left:.0f} requests are still there"
            why = f"{busy} after {seconds:.0f} s" + ("; it serves on, untouched" if returns else "")
            return {"ok": False, "changed": False, "left": left, "waited_s": round(seconds, 1), "why": why}
        time.sleep(0.5)
    if returns and not out["ok"]:
        enter(instance, min(seconds, 60.0))
    return {
        "ok": out["ok"],
        "changed": out["changed"],
        "left": left,
        "waited_s": round(time.monotonic() - begun, 1),
        "why": out["why"],
    }
