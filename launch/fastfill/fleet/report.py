"""What runs on this host: the answer of ``status``, from which a lost controller learns everything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastfill.errors import FastfillError
from fastfill.fleet import places, web
from fastfill.fleet.engine import Engine
from fastfill.fleet.places import Instance


def instance(engine: Engine, one: Instance) -> dict[str, Any]:
    """One server: its links, what runs, since when, by which evidence, and where these differ."""
    proven = one.link("proven")
    evidence = one.evidence(proven) if proven else {}
    url = str(one.settings().get("url", ""))
    try:
        state = engine.state(one)
    except FastfillError as error:
        return {"name": one.name, "url": url, "proven": proven, "drift": [str(error)], "serving": False}
    owned = engine.active(one)
    answers = state.status == "running" and web.ask(f"{url}/metrics/").status == 200
    return {
        "name": one.name,
        "url": url,
        "proven": proven,
        "previous": one.link("previous"),
        "candidate": one.link("candidate"),
        "runs": state.release or None,
        "status": state.status or "absent",
        "health": state.health,
        "started": state.started,
        "container": state.id[:12],
        "in_service": one.in_service(),
        "verdict": evidence.get("verdict"),
        "proven_when": evidence.get("when"),
        "load_s": evidence.get("load_s"),
        "serving": answers and state.health == "healthy",
        "drift": drift(one, proven, state.release, state.status, owned),
        "known": {name: known(one, name) for name in one.releases()},
    }


def known(one: Instance, release: str) -> dict[str, Any]:
    """What this host knows of a release."""
    evidence = one.evidence(release)
    return {
        "name": places.read(one.release(release) / "release.json").get("name", ""),
        "verdict": evidence.get("verdict"),
        "when": evidence.get("when"),
        "load_s": evidence.get("load_s"),
    }


def back(state: dict[str, Any], wanted: str = "") -> str | None:
    """The release that a server goes back to.

    Args:
        state: As :func:`instance` reports it.
        wanted: A release by name or id; "" for the one that was proven before.

    Returns:
        Its id; None where the host has no such release that was proven.
    """
    found = state.get("known", {})
    if not wanted:
        return state.get("previous")
    proven = [name for name, one in found.items() if one["verdict"] == "FIRED" and wanted in (name, one["name"])]
    return max(proven, key=lambda name: str(found[name]["when"])) if proven else None


def drift(one: Instance, proven: str | None, runs: str, status: str, owned: bool) -> list[str]:
    """Where what runs is not what was proven, in words."""
    if proven is None:
        return ["no release was ever proven here"]
    found = []
    if one.link("candidate"):
        found.append(f"a switch to {one.link('candidate')} was broken off, or goes on")
    if status != "running":
        found.append(f"the server is {status or 'absent'}")
    elif runs != proven:
        found.append(f"{runs or 'something else'} runs, {proven} is proven")
    if not owned:
        found.append("systemd does not own the server")
    if one.evidence(proven).get("verdict") != "FIRED":
        found.append("there is no evidence of the proof")
    return found


def host(engine: Engine, root: Path) -> dict[str, Any]:
    """Every server of this host."""
    return {
        "schema": "fastfill.fleet.status/1",
        "fence": places.read(root / "fence.json"),
        "instances": [instance(engine, one) for one in places.instances(root)],
    }
