"""How many servers may be taken out, and how a batch went. Pure."""

from __future__ import annotations

import math
from typing import Any

from fastfill.errors import FastfillError


def spare(healthy: int, total: int, minimum: float, *, allow_outage: bool = False) -> int:
    """How many healthy servers may be drained at once.

    Args:
        healthy: Servers that answer and are in the routers now.
        total: Servers that there should be.
        minimum: The share of ``total`` that must stay, 0 to 1.
        allow_outage: Whether the last server may go, too.
    """
    if allow_outage:
        return healthy
    floor = math.ceil(round(total * minimum, 9))
    # The last one stays whatever the share says: nobody would answer.
    return max(0, healthy - max(floor, 1))


def turns(
    wanting: dict[str, bool], healthy: int, total: int, minimum: float, *, allow_outage: bool = False
) -> dict[str, Any]:
    """Which of a batch's servers may be drained now.

    Args:
        wanting: Server to whether it is healthy and in service; one that is not costs no capacity.
        healthy: As in :func:`spare`.
        total: As in :func:`spare`.
        minimum: As in :func:`spare`.
        allow_outage: As in :func:`spare`.

    Returns:
        ``go`` and ``wait``, lists of servers, and ``why``.
    """
    left = spare(healthy, total, minimum, allow_outage=allow_outage)
    go: list[str] = []
    wait: list[str] = []
    for server, serving in wanting.items():
        if not serving:
            go.append(server)
        elif left > 0:
            go.append(server)
            left -= 1
        else:
            wait.append(server)
    why = f"{healthy} of {total} serve; at least {math.ceil(round(total * minimum, 9))} must ({minimum:.0%})"
    if wait:
        need = (healthy - len([one for one in wanting if wanting[one]])) / total if total else 0.0
        why += (
            "; the last server would go: -e fleet_allow_outage=true"
            if total == 1 or healthy <= 1
            else f"; -e fleet_min_capacity={max(0.0, math.floor(need * 100) / 100):.2f} would let all of them go"
        )
    return {"go": go, "wait": wait, "why": why}


def verdict(members: list[str], reports: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """How a batch went, once every host of it is done.

    Args:
        members: The hosts that began it.
        reports: Host to what it recorded: ``outcome`` (proven, unchanged, skipped, returned, stranded) and ``why``.
            A host without one became unreachable.

    Returns:
        ``ok`` (the next batch may start), ``failed``, ``skipped`` and ``text``, one line a host that is not proven.
    """
    failed: list[str] = []
    skipped: list[str] = []
    lines: list[str] = []
    for host in members:
        report = reports.get(host) or {"outcome": "unreachable", "why": "it stopped answering during its switch"}
        outcome = report.get("outcome", "unreachable")
        if outcome in ("proven", "unchanged"):
            continue
        (skipped if outcome == "skipped" else failed).append(host)
        lines.append(f"{host}: {outcome}: {report.get('why', '')}")
    return {"ok": not failed, "failed": failed, "skipped": skipped, "text": lines}


def minimum(value: object) -> float:
    """``0.85``, ``85`` or ``85 %`` as a share.

    Raises:
        FastfillError: It is none of them.
    """
    text = str(value).replace("%", "").strip()
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if number > 1 or "%" in str(value):
        number /= 100
    if not 0 <= number <= 1:
        raise FastfillError(f"'{value}' is no share", where="fleet_min_capacity", next_step="write 0.85 or 85 %")
    return number
