"""The kit's deciding code as filters: it runs on the controller, from this checkout, and needs no installation."""

from __future__ import annotations

import functools
import hashlib
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "launch"))

from fastfill.errors import FastfillError
from fastfill.fleet import capacity, fanout, release, report


def _told(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def called(*args: Any, **options: Any) -> Any:
        try:
            return function(*args, **options)
        except FastfillError as error:
            raise AnsibleFilterError("; ".join(line.strip() for line in error.lines())) from None

    return called


def _turns(wanting: dict[str, bool], serving: list[str], urls: list[str], minimum: object, outage: bool) -> Any:
    share = capacity.minimum(minimum)
    return capacity.turns(wanting, len(set(serving) & set(urls)), len(urls), share, allow_outage=outage)


def _missing(packages: dict[str, str], there: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Packages that are not installed in exactly the version that is wanted."""
    return {name: version for name, version in packages.items() if there.get(name, {}).get("version") != version}


def _new_enough(versions: list[str], oldest: list[str]) -> bool:
    """Whether each is there and not older; what follows the numbers (-ce, +dfsg1) says nothing."""

    def numbers(version: str) -> list[int]:
        found = re.match(r"v?(\d+(?:\.\d+)*)", version)
        return [int(part) for part in found[1].split(".")] if found else []

    return all(numbers(one) and numbers(one) >= numbers(least) for one, least in zip(versions, oldest, strict=True))


def _differ(texts: list[dict[str, str]], digests: dict[str, str]) -> bool:
    """Whether a file (``key``) is not there with just this text (``value``)."""
    return any(hashlib.sha256(one["value"].encode()).hexdigest() != digests.get(one["key"]) for one in texts)


def _enabled(units: list[str], there: dict[str, dict[str, bool]]) -> bool:
    """Whether all start at boot, and the timers among them run."""
    found = [(name, there.get(name, {})) for name in units]
    return all(one.get("enabled") and (one.get("active") or not name.endswith(".timer")) for name, one in found)


def _instances(given: list[dict[str, Any]], bind: str, root: str, secrets: dict[str, str]) -> list[dict[str, Any]]:
    """A host's servers with what they are given on it: the address to bind, and where their keys lie."""
    found = []
    for one in given:
        folder = f"{root}/instances/{one['name']}/secrets"
        keys = {f"FASTFILL_{name.upper()}_FILE": f"{folder}/{name}" for name in secrets if name != "router_key"}
        found.append({"bind": bind, **one, "settings": {**keys, **one.get("settings", {})}})
    return found


def _identities(asked: dict[str, Any], instances: list[dict[str, Any]], texts: dict[str, str]) -> dict[str, str]:
    checked = release.check(asked)
    return {one["name"]: release.identity(checked, one, texts) for one in instances}


def _staged(
    asked: dict[str, Any],
    instances: list[dict[str, Any]],
    texts: dict[str, str],
    files: list[str],
    address: str,
    routers: list[str],
) -> list[dict[str, Any]]:
    """What fleet_stage is told: each server's release as files."""
    found = []
    for one in instances:
        known = release.identity(asked, one, texts)
        manifest = json.dumps(release.manifest(asked, one, known, files), indent=1, sort_keys=True)
        made = {
            "compose.release.yaml": release.override(asked, one, known, texts),
            ".env": release.settings(asked, one),
            "release.json": manifest + "\n",
        }
        about = {"schema": 1, "name": one["name"], "url": f"http://{address}:{one['port']}", "routers": routers}
        found.append({"name": one["name"], "release": known, "files": {**texts, **made}, "about": about})
    return found


def _due(instances: list[dict[str, Any]], states: list[dict[str, Any]], wanted: dict[str, str]) -> list[dict[str, Any]]:
    """The servers that do not run, own and announce what is wanted."""
    now = {state["name"]: state for state in states}

    def fine(name: str) -> bool:
        state = now.get(name, {})
        runs = state.get("proven") == wanted[name] and state.get("serving") and not state.get("drift")
        return bool(runs and state.get("in_service"))

    return [one for one in instances if not fine(one["name"])]


def _back(states: list[dict[str, Any]], wanted: str) -> dict[str, str]:
    """Server to the release that it goes back to."""
    found = {}
    for state in states:
        target = report.back(state, wanted)
        if target is None:
            raise FastfillError(
                f"{state['name']} has no {wanted or 'earlier release'} that was proven",
                where=", ".join(state.get("known", {})),
                next_step="roll out a release: ansible-playbook ansible/site.yml",
            )
        found[state["name"]] = target
    return found


def _time_back(states: list[dict[str, Any]], targets: dict[str, str], drain_s: int) -> list[str]:
    """The time back, server by server: the drain, the host's own measured load time, and a minute."""
    lines = []
    for state in states:
        load = state["known"][targets[state["name"]]]["load_s"] or 0
        lines.append(
            f"{state['name']}: {state['proven']} -> {targets[state['name']]} in about {load + 60:.0f} s, "
            f"and up to {drain_s} s until it is idle"
        )
    return lines


def _reports(hostvars: Any, members: list[str], there: list[str]) -> dict[str, Any]:
    """What the hosts of a batch recorded, of those that came to their end."""
    return {
        host: hostvars[host]["server_report"]
        for host in members
        if host in there and hostvars[host].get("server_done", False)
    }


def _all_reports(hostvars: Any, hosts: list[str], there: list[str]) -> dict[str, Any]:
    """What each host recorded so far; those that stopped answering recorded nothing that holds."""
    return {
        host: hostvars[host]["server_report"] for host in hosts if host in there and "server_report" in hostvars[host]
    }


def _answers(hostvars: Any, hosts: list[str]) -> dict[str, Any]:
    return {host: hostvars[host]["status_asked"].get("answer") for host in hosts}


def _table(hostvars: Any, hosts: list[str]) -> list[str]:
    """One line a server."""
    lines = []
    for host, answer in _answers(hostvars, hosts).items():
        if answer is None:
            lines.append(f"{host}: does not answer")
        elif not answer["instances"]:
            lines.append(f"{host}: nothing was rolled out to it yet")
        for one in (answer or {}).get("instances", []):
            says = f"{one.get('verdict')} {one.get('proven_when') or ''}".strip()
            where = "in the routers" if one.get("in_service") else "out of the routers"
            drift = "; ".join(one.get("drift", []))
            lines.append(f"{host}/{one['name']}: {one.get('runs') or 'nothing'} ({says}, {where}) {drift}".rstrip())
    return lines


def _epoch(hostvars: Any, hosts: list[str]) -> str:
    answers = _answers(hostvars, hosts).values()
    return str(max([0, *(int(answer["fence"].get("epoch", 0)) for answer in answers if answer)]))


def _models(hostvars: Any, hosts: list[str]) -> dict[str, dict[str, Any]]:
    """What each host knows of its copy of the model, of those that came so far."""
    return {host: hostvars[host]["model_state"] for host in hosts if "model_state" in hostvars[host]}


def _fan_out(states: dict[str, dict[str, Any]], each: int) -> dict[str, str]:
    """One round: host to the one that it copies the model from."""
    have = sorted(host for host, state in states.items() if state["state"] == "whole")
    want = sorted(set(states) - set(have))
    return fanout.assign(have, want, each, {host: state["tried"] for host, state in states.items()})


class FilterModule:
    """The filters by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """As Ansible asks for them."""
        return {
            "fleet_all_reports": _all_reports,
            "fleet_back": _told(_back),
            "fleet_checked": _told(release.check),
            "fleet_differ": _differ,
            "fleet_due": _due,
            "fleet_enabled": _enabled,
            "fleet_epoch": _epoch,
            "fleet_fan_out": _fan_out,
            "fleet_identities": _told(_identities),
            "fleet_image": _told(release.pinned_image),
            "fleet_instances": _instances,
            "fleet_models": _models,
            "fleet_missing": _missing,
            "fleet_new_enough": _new_enough,
            "fleet_reports": _reports,
            "fleet_staged": _told(_staged),
            "fleet_table": _table,
            "fleet_time_back": _time_back,
            "fleet_turns": _told(_turns),
            "fleet_verdict": _told(capacity.verdict),
        }
