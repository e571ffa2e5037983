"""Out of the routers for a whole proof, and back; it runs to its end without the controller."""

from __future__ import annotations

from typing import Any

from fastfill.fleet import drain, proving
from fastfill.fleet.engine import Engine
from fastfill.fleet.places import Instance


def inspect(engine: Engine, instance: Instance, proof_s: float, drain_s: float) -> dict[str, Any]:
    """Drain a server, prove it whole, and let it serve again whatever the proof says.

    Args:
        engine: Docker and systemd.
        instance: Which server; with a switch of it going on it is left alone.
        proof_s: Seconds for the proof.
        drain_s: Seconds until it must be idle; one that is not goes back, unproven.

    Returns:
        As :func:`proving.again`, and ``back``: whether the routers hold it for healthy again.
    """
    with instance.alone():
        # One whose last turn was broken off is out of service, and not for good.
        served = instance.in_service() or instance.is_away()
        instance.note_away(served)
        idle = drain.drain(instance, drain_s, back=served)
        if not idle["ok"]:
            instance.note_away(False)
            return {"ok": False, "changed": False, "verdict": None, "summary": idle["why"], "back": served}
        try:
            said = proving.again(engine, instance, proof_s, drained=True)
        finally:
            back = drain.enter(instance) if served else {"ok": True, "why": ""}
            instance.note_away(False)
        if not back["ok"]:
            said |= {"ok": False, "summary": f"{said['summary']}; the routers do not take it back: {back['why']}"}
        return {**said, "changed": True, "back": back["ok"]}
