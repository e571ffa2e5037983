"""The command line of the tool that the roles put on each host. Every command prints one JSON document."""

from __future__ import annotations

import argparse
import json
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastfill.errors import ExitCode, FastfillError, UsageError, refused
from fastfill.fleet import (
    audit,
    bundle,
    drain,
    inspection,
    lease,
    model,
    places,
    probing,
    proving,
    prune,
    report,
    rolling,
    serving,
    soak,
    survey,
)
from fastfill.fleet.engine import Engine
from fastfill.fleet.places import Instance
from fastfill.fleet.switch import Switch, Times


def main(argv: list[str] | None = None) -> int:
    """Run one command.

    Returns:
        0 when it came to an end that its document describes; else the error's code, and the error is on stderr.
    """
    asked = _parser().parse_args(argv)
    try:
        answer = asked.run(asked)
    except (FastfillError, OSError) as error:
        # A playbook shows the last lines: a traceback would be in them, and not what to do.
        known = refused(error) if isinstance(error, OSError) else error
        sys.stderr.write("\n".join(known.lines()) + "\n")
        return int(known.code)
    if isinstance(answer, int):
        return answer
    sys.stdout.write(json.dumps(answer) + "\n")
    return int(ExitCode.OK)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fastfill-fleet", description=__doc__)
    parser.add_argument("--root", type=Path, default=places.ROOT, help="the fleet's folder on this host")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Any, *, instance: bool = False) -> argparse.ArgumentParser:
        one = commands.add_parser(name, help=run.__doc__)
        one.set_defaults(run=run)
        if instance:
            one.add_argument("instance")
        return one

    command("status", _status)
    command("serve", _serve, instance=True)
    command("stop", _stop, instance=True)
    one = command("survey", _survey)
    one.add_argument("--rollout", default="", help="obey this run from now on")
    one.add_argument("--epoch", type=int, default=0)
    one = command("roll", _roll, instance=True)
    one.add_argument("release")
    one.add_argument("--drain-timeout", type=float, default=600.0)
    one.add_argument("--start-timeout", type=float, default=Times.start)
    one.add_argument("--proof-timeout", type=float, default=Times.proof)
    one.add_argument("--discard", action="store_true", help="the release that is left was found to be bad")
    _fenced(one)
    one = command("mend", _mend, instance=True)
    one.add_argument("release")
    _fenced(one)
    _fenced(command("retire", _retire, instance=True))
    one = command("drain", _drain, instance=True)
    one.add_argument("--timeout", type=float, default=600.0)
    _fenced(one)
    for name, run in (("enter", _enter), ("leave", _leave)):
        _fenced(command(name, run, instance=True))
    command("reconcile", _reconcile)
    one = command("prune", _prune)
    one.add_argument("--keep", action="append", default=[])
    _fenced(one)
    _fenced(command("fence", _fence))
    one = command("prove", _prove, instance=True)
    one.add_argument("--timeout", type=float, default=120.0)
    one = command("inspect", _inspect, instance=True)
    one.add_argument("--timeout", type=float, default=300.0)
    one.add_argument("--drain-timeout", type=float, default=600.0)
    _fenced(one)
    one = command("prove-all", _prove_all)
    one.add_argument("--timeout", type=float, default=120.0)
    one.add_argument("--host", default=socket.gethostname(), help="what the inventory calls this host")
    one.add_argument("--textfile", type=Path, help="where node_exporter's textfile collector reads")
    one = command("path", _path, instance=True)
    one.add_argument("state", choices=("on", "off", "status"))
    one.add_argument("--who", default="")
    one.add_argument("--why", default="")
    one = command("lease", _lease)
    one.add_argument("verb", choices=("acquire", "renew", "release", "show", "raise"))
    one.add_argument("--epoch", type=int, default=0, help="with raise: at least this one")
    one.add_argument("--rollout", default="")
    one.add_argument("--owner", default="")
    one.add_argument("--breaks", default="")
    one.add_argument("--seconds", type=float, default=lease.SECONDS)
    one.add_argument("--entry", type=json.loads, help="JSON for the audit log")
    one = command("audit", _audit)
    one.add_argument("--entry", help="JSON to add")
    one.add_argument("--last", type=int, default=50)
    command("serving", _serving)
    one = command("soak", _soak)
    one.add_argument("--canary", type=json.loads, required=True)
    one.add_argument("--others", type=json.loads, required=True)
    one.add_argument("--limits", type=json.loads, default={})
    one.add_argument("--seconds", type=float, required=True)
    one.add_argument("--timeout", type=float, required=True)
    for name, run in (("model-look", _model_look), ("model-pull", _model_pull)):
        one = command(name, run)
        one.add_argument("folder", type=Path, help="named as the revision")
        one.add_argument("--revision", required=True)
        one.add_argument("--stamp", type=Path, required=True, help="where it is remembered what was hashed")
    one.add_argument("--source", required=True, help="USER@HOST")
    one.add_argument("--port", type=int, default=22)
    one.add_argument("--host-key", required=True, help="TYPE BASE64")
    one.add_argument("--identity", type=Path, required=True)
    one.add_argument("--manifest", required=True)
    one.add_argument("--bytes", type=int, required=True)
    one.add_argument("--bandwidth", default="0", help="as rsync --bwlimit")
    one.add_argument("--timeout", type=float, default=14400.0)
    command("bundle", _bundle).add_argument("file", type=Path)
    return parser


def _fenced(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rollout", required=True)
    parser.add_argument("--epoch", type=int, required=True)


def _instance(asked: argparse.Namespace) -> Instance:
    return Instance(asked.root, asked.instance)


def _heed(asked: argparse.Namespace) -> None:
    """Refuse a run that has lost the lock, and remember the newest one."""
    file = asked.root / "fence.json"
    # Two runs that read at the same moment would each believe to be the newest.
    with places.held(asked.root / "fence.lock"):
        known = places.read(file)
        wanted = lease.fence(known, asked.rollout, asked.epoch)
        if wanted != known:
            places.write(file, wanted)


def _status(asked: argparse.Namespace) -> Any:
    """What runs on this host."""
    return report.host(Engine(), asked.root)


def _serve(asked: argparse.Namespace) -> int:
    """Run the proven release until it ends: the unit's main process."""
    return serving.serve(Engine(), _instance(asked))


def _stop(asked: argparse.Namespace) -> Any:
    """Stop the server."""
    Engine().stop(_instance(asked))
    return {"changed": True}


def _survey(asked: argparse.Namespace) -> Any:
    """What is on this host, of the names in the JSON on stdin."""
    if asked.rollout:
        _heed(asked)
    return survey.survey(Engine(), asked.root, _given())


def _roll(asked: argparse.Namespace) -> Any:
    """Out of the routers, to a release, proven or back, and in again."""
    times = Times(asked.start_timeout, asked.proof_timeout)
    one = Switch(Engine(), _instance(asked), times, say=lambda text: _talk(f"{asked.instance}: {text}"))
    return rolling.roll(
        one, asked.release, asked.drain_timeout, keep=not asked.discard, heed=lambda: _heed(asked)
    ).document()


def _mend(asked: argparse.Namespace) -> Any:
    """Hand a server that serves what is wanted back to systemd and to the routers."""
    return rolling.mend(Switch(Engine(), _instance(asked)), asked.release, lambda: _heed(asked)).document()


def _retire(asked: argparse.Namespace) -> Any:
    """Out of the routers, and no release is proven here any more."""
    _heed(asked)
    return rolling.retire(Engine(), _instance(asked))


def _drain(asked: argparse.Namespace) -> Any:
    """Out of the routers, and wait until it is idle."""
    _heed(asked)
    return drain.drain(_instance(asked), asked.timeout)


def _enter(asked: argparse.Namespace) -> Any:
    """Into the routers."""
    _heed(asked)
    return drain.enter(_instance(asked))


def _leave(asked: argparse.Namespace) -> Any:
    """Out of the routers."""
    _heed(asked)
    return drain.leave(_instance(asked))


def _fence(asked: argparse.Namespace) -> Any:
    """Obey this run from now on, and no older one."""
    before = places.read(asked.root / "fence.json")
    _heed(asked)
    return {"changed": before != places.read(asked.root / "fence.json")}


def _reconcile(asked: argparse.Namespace) -> Any:
    """Bring the routers in step with what is proven here."""
    done: list[str] = []
    failed: FastfillError | None = None
    for one in places.instances(asked.root):
        try:
            if rolling.recover(Engine(), one):
                done.append(f"{one.name}: its switch was broken off; what is proven serves again")
            done += drain.in_step(one)
        except FastfillError as error:
            # The others' routers must not wait for it.
            failed = failed or error
    if failed is not None:
        raise failed
    return {"changed": bool(done), "done": done}


def _serving(asked: argparse.Namespace) -> Any:
    """Which servers serve now: urls, routers and router_key in the JSON on stdin."""
    given = _given()
    return {"serving": probing.serving(given["urls"], given["routers"], given.get("router_key", ""))}


def _soak(asked: argparse.Namespace) -> Any:
    """Watch a canary's traffic until it is judged."""
    limits = soak.Limits(**asked.limits)
    return probing.watch(asked.canary, asked.others, limits, soak_s=asked.seconds, timeout_s=asked.timeout)


def _prove(asked: argparse.Namespace) -> Any:
    """A proof of what runs, kept beside the one that it was accepted with."""
    return proving.again(Engine(), _instance(asked), asked.timeout)


def _inspect(asked: argparse.Namespace) -> Any:
    """Out of the routers for a whole proof, with a trace, and back."""
    _heed(asked)
    return inspection.inspect(Engine(), _instance(asked), asked.timeout, asked.drain_timeout)


def _prove_all(asked: argparse.Namespace) -> Any:
    """Prove every server of this host; what the timer runs."""
    kept, said = {}, {}
    for one in places.instances(asked.root):
        try:
            said[one.name] = proving.again(Engine(), one, asked.timeout)
        except FastfillError as error:
            # The other servers are proven, and the metrics written, all the same.
            said[one.name] = {"ok": False, "verdict": None, "summary": str(error), "changed": False}
        release = one.link("proven")
        if release:
            kept[f"{asked.host}/{one.name}"] = one.evidence(release)
    if asked.textfile:
        part = asked.textfile.with_suffix(".part")
        part.write_text(proving.exposition(kept), encoding="utf-8")
        part.chmod(0o644)
        part.replace(asked.textfile)
    return said


def _path(asked: argparse.Namespace) -> Any:
    """The kill switch of one server."""
    return proving.path(Engine(), _instance(asked), asked.state, asked.who, asked.why)


def _prune(asked: argparse.Namespace) -> Any:
    """Take old releases of all servers away."""
    _heed(asked)
    return prune.prune(Engine(), places.instances(asked.root), asked.keep)


def _lease(asked: argparse.Namespace) -> Any:
    """Take, prolong or give back the cluster's lock."""
    folder, now, how = asked.root / "lock", time.time(), ""

    def change(old: lease.Lease) -> lease.Lease:
        nonlocal how
        if asked.verb == "acquire":
            new, how = lease.acquire(old, asked.rollout, asked.owner, now, seconds=asked.seconds, breaks=asked.breaks)
            return new
        if asked.verb == "renew":
            return lease.renew(old, asked.rollout, now, seconds=asked.seconds)
        if asked.verb == "raise":
            return replace(old, epoch=max(old.epoch, asked.epoch))
        return lease.release(old, asked.rollout) if asked.verb == "release" else old

    found = lease.change(folder, change)
    if asked.entry is not None:
        audit.add(folder, {**asked.entry, **({"lock": how} if how else {})})
    return {"rollout": found.rollout, "owner": found.owner, "epoch": found.epoch, "how": how, "held": found.held(now)}


def _audit(asked: argparse.Namespace) -> Any:
    """Add to the audit log, or read it."""
    if asked.entry is None:
        return {"entries": audit.last(asked.root / "lock", asked.last)}
    return audit.add(asked.root / "lock", json.loads(asked.entry))


def _model_look(asked: argparse.Namespace) -> Any:
    """Whether a model's weights are there, whole."""
    return model.look(asked.folder, asked.revision, asked.stamp)


def _model_pull(asked: argparse.Namespace) -> Any:
    """Copy a model's weights from another host."""
    source = model.Source(asked.source, asked.port, asked.host_key, asked.identity)
    wanted = model.Wanted(asked.folder, asked.revision, asked.manifest, asked.bytes, asked.stamp)
    return model.pull(Engine(), source, wanted, asked.bandwidth, asked.timeout)


def _bundle(asked: argparse.Namespace) -> Any:
    """Write this tool as one file."""
    return {"changed": bundle.write(asked.file)}


def _given() -> dict[str, Any]:
    try:
        found = json.load(sys.stdin)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise UsageError("no JSON object on stdin", where="stdin", next_step="the playbooks give it")
    return found


def _talk(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
