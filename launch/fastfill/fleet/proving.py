"""Between rollouts: does it still fire, and the kill switch. Both through the release's own command line."""

from __future__ import annotations

import time
from typing import Any

from fastfill.errors import FastfillError
from fastfill.fleet.engine import Engine
from fastfill.fleet.places import Instance
from fastfill.fleet.switch import CLOCK_FORMAT, document


def again(engine: Engine, instance: Instance, seconds: float) -> dict[str, Any]:
    """Prove the running server; what it says is kept as ``last`` in the evidence, for status and the metrics.

    Returns:
        ``ok``, ``verdict``, ``summary``, ``coverage``, ``when``.
    """
    state = engine.state(instance)
    if state.status != "running" or not state.release:
        return {"ok": False, "verdict": None, "summary": f"the server is {state.status or 'absent'}", "changed": False}
    ran = engine.prove(instance, seconds)
    proof = document(ran.out)
    last = {
        "verdict": proof.get("verdict"),
        "when": time.strftime(CLOCK_FORMAT, time.gmtime()),
        "summary": proof.get("summary") or ran.err.strip()[-300:],
        "coverage": proof.get("coverage"),
    }
    instance.keep_evidence(state.release, instance.evidence(state.release) | {"last": last})
    return {"ok": ran.code == 0, "changed": True, **last}


def path(engine: Engine, instance: Instance, state: str, who: str, why: str) -> dict[str, Any]:
    """Turn the path on or off, or ask; the server keeps it over restarts and switches.

    Raises:
        FastfillError: The server did not take it.
    """
    argv = [
        "docker",
        "exec",
        instance.container,
        "fastfill",
        "path",
        state,
        "--url",
        "http://127.0.0.1:30000",
        "--json",
    ]
    if state != "status":
        argv += ["--who", who, "--why", why]
    ran = engine.run(argv, timeout=60)
    if ran.code != 0:
        raise FastfillError(
            f"the server did not take it: {ran.err.strip()[-500:]}",
            where=instance.container,
            next_step="look at the server: ansible-playbook ansible/status.yml",
        )
    found = document(ran.out)
    return {"changed": state != "status", **{key: found.get(key) for key in ("path", "who", "when", "why")}}
