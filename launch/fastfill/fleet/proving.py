"""Between rollouts: does it still fire, and the kill switch. Both through the release's own command line."""

from __future__ import annotations

import calendar
import time
from typing import Any

from fastfill.errors import FastfillError, NotReadyError
from fastfill.fleet.engine import Engine
from fastfill.fleet.places import Instance
from fastfill.fleet.switch import CLOCK_FORMAT, document, summary

LIGHT = ("--light",)
"""For a server that others use: one small prompt and its control, at most 1 % of what it takes from them."""
WHOLE = ("--witness", "counters,log,trace")
"""For one that nobody uses: load, the comparison of answers, and a trace."""
_SWITCHING = {"ok": False, "verdict": None, "summary": "a switch goes on, which proves it", "changed": False}


def again(engine: Engine, instance: Instance, seconds: float, *, drained: bool = False) -> dict[str, Any]:
    """Prove the running server. What it says is kept as ``last`` in the evidence, for status and the metrics.

    That nothing could be said is kept, too.

    Args:
        engine: Docker and systemd.
        instance: Which server.
        seconds: For the proof.
        drained: Nobody uses the server: prove it whole.

    Returns:
        ``ok``, ``verdict``, ``summary``, ``coverage``, ``witnesses``, ``when``.

    Raises:
        NotReadyError: It is to be proven whole while the routers send it requests.
    """
    if drained and instance.in_service():
        raise NotReadyError(
            f"{instance.name} takes requests: a whole proof would hold them up",
            where=str(instance.settings()["url"]),
            next_step="ansible-playbook ansible/prove.yml -e prove_drained=true takes it out of the routers first",
        )
    if not drained and instance.switching():
        return dict(_SWITCHING)
    release: str | None = None
    try:
        state = engine.state(instance)
        release = state.release
        running = state.status == "running" and bool(release)
        ran = engine.prove(instance, seconds, *(WHOLE if drained else LIGHT)) if running else None
        absent = f"the server is {state.status or 'absent'}"
    except FastfillError as error:
        ran, absent = None, str(error)
    if not drained and instance.switching():
        # It was stopped under the proof, which says nothing of the release then.
        return dict(_SWITCHING)
    proof = document(ran.out) if ran else {}
    last = {
        "verdict": proof.get("verdict"),
        "when": time.strftime(CLOCK_FORMAT, time.gmtime()),
        "summary": summary(proof) or (ran.err.strip()[-300:] if ran else absent),
        "coverage": proof.get("coverage"),
        "witnesses": proof.get("witnesses"),
    }
    # Where nothing runs, it is the proven release that ought to.
    release = release or instance.link("proven")
    if release:
        instance.keep_evidence(release, instance.evidence(release) | {"last": last})
    return {"ok": ran is not None and ran.code == 0, "changed": bool(release), **last}


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


def exposition(servers: dict[str, dict[str, Any]]) -> str:
    """The last proofs in Prometheus' text format, for a textfile collector. Pure.

    Args:
        servers: Server to its release's evidence; ``last`` is the newest proof, else the one of the rollout counts.
    """
    lines = [
        "# HELP fastfill_proof_timestamp_seconds When the server was last proven.",
        "# TYPE fastfill_proof_timestamp_seconds gauge",
    ]
    fired = [
        "# HELP fastfill_proof_fired Whether the last proof said FIRED.",
        "# TYPE fastfill_proof_fired gauge",
    ]
    for server, evidence in sorted(servers.items()):
        last = evidence.get("last") or evidence
        labels = f'{{server="{server}",release="{evidence.get("release", "")}"}}'
        good = [one for one in (evidence, evidence.get("last") or {}) if one.get("verdict") == "FIRED"]
        if good:
            when = calendar.timegm(time.strptime(max(str(one["when"]) for one in good), CLOCK_FORMAT))
            lines.append(f"fastfill_proof_timestamp_seconds{labels} {when}")
        fired.append(f"fastfill_proof_fired{labels} {int(last.get('verdict') == 'FIRED')}")
    return "\n".join([*lines, *fired]) + "\n"
