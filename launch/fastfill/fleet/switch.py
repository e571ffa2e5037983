"""One instance from one release to another, on its own host: it ends on a release that is proven, or says that none is.

It runs to its end without the controller. Whatever breaks off in the middle, the unit starts what ``proven`` names.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fastfill.errors import FastfillError
from fastfill.fleet.engine import Engine
from fastfill.fleet.places import Instance

CLOCK_FORMAT = "%Y-%m-%dT%H:%M:%SZ"


@dataclass
class Outcome:
    """What came of it.

    Attributes:
        outcome: proven, unchanged, returned (serves the last proven release again), stranded (serves nothing),
            skipped (was left alone).
        why: What went wrong, "" where nothing did.
        changed: Whether a server was started or stopped.
        before: What was proven.
        back: Where it would go back to; None where there is nothing else.
        load_s: From its start until it was healthy.
        proof_s: The proof.
        drain_s: Until it was idle.
        enter_s: Until the routers held it for healthy again.
        seconds: The switch, from the stop of what ran to what serves then; without the drain and the routers.
    """

    instance: str
    release: str
    outcome: str = "proven"
    why: str = ""
    changed: bool = True
    before: str | None = None
    back: str | None = None
    serves: str | None = None
    verdict: str | None = None
    load_s: float | None = None
    proof_s: float | None = None
    drain_s: float | None = None
    enter_s: float | None = None
    seconds: float = 0.0
    log: list[str] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return dict(self.__dict__)


@dataclass(frozen=True)
class Times:
    """Seconds: until healthy, for the proof, and between looks."""

    start: float = 3600.0
    proof: float = 300.0
    every: float = 2.0


class Switch:
    """One switch.

    Args:
        engine: Docker and systemd.
        instance: Which server.
        times: How long things may take.
        say: Takes one line at each stage.
        sleep: For tests.
    """

    def __init__(
        self,
        engine: Engine,
        instance: Instance,
        times: Times | None = None,
        say: Callable[[str], None] = lambda _: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.engine = engine
        self.instance = instance
        self.times = times or Times()
        self.say = say
        self.sleep = sleep

    def to(self, release: str, *, keep: bool = True) -> Outcome:
        """:meth:`change`, with nobody else at it.

        Raises:
            NotReadyError: Somebody else is at it.
        """
        with self.instance.alone():
            return self.change(release, keep=keep)

    def change(self, release: str, *, keep: bool = True) -> Outcome:
        """Start a release, prove it, and move the links; or go back. The caller holds the instance.

        Args:
            release: On this host already.
            keep: Whether the release that is left becomes ``previous``: not where it was found to be bad.
        """
        instance = self.instance
        begun = time.monotonic()
        before = instance.link("proven")
        back = before if before != release else instance.link("previous")
        result = Outcome(instance.name, release, before=before, back=back)
        instance.manifest(release)
        if before == release and instance.link("candidate") is None and self._serves(release):
            result.outcome, result.changed, result.serves = "unchanged", False, release
            result.verdict = instance.evidence(release).get("verdict")
        else:
            try:
                self._try(release, result)
                self._keep(release, before, keep)
                result.serves = release
            except (FastfillError, OSError, ValueError) as error:
                result.why = str(error)
                self._back(before, result)
        result.seconds = round(time.monotonic() - begun, 1)
        return result

    def _serves(self, release: str) -> bool:
        """Whether it runs as it should; a server that systemd has let go of is handed back to it, without a reload."""
        end = time.monotonic() + self.times.start
        state = self.engine.state(self.instance)
        # After a restart of the engine its first look at a server's health is yet to come.
        while (state.release, state.health) == (release, "starting") and time.monotonic() < end:
            self.sleep(self.times.every)
            state = self.engine.state(self.instance)
        if (state.release, state.status, state.health) != (release, "running", "healthy"):
            return False
        return self.engine.active(self.instance) or self.engine.unit(self.instance, "start").code == 0

    def _try(self, release: str, result: Outcome) -> None:
        self.instance.point("candidate", release)
        self.say("stopping the proven release")
        self.engine.unit(self.instance, "stop")
        self.engine.unit(self.instance, "reset-failed")
        self.engine.stop(self.instance)
        begun = time.monotonic()
        self._start(release)
        result.load_s = round(time.monotonic() - begun, 1)
        self._prove(release, result)

    def _start(self, release: str) -> None:
        self.say(f"starting {release}")
        ran = self.engine.up(self.instance, release)
        if ran.code != 0:
            raise FastfillError(f"it does not start: {_last(ran.err)}")
        self._healthy()

    def _healthy(self) -> None:
        end = time.monotonic() + self.times.start
        while True:
            state = self.engine.state(self.instance)
            if state.health == "healthy":
                return
            if state.status in ("exited", "dead", ""):
                raise FastfillError(f"the server ended with exit code {state.exit_code} before it was healthy")
            if time.monotonic() >= end:
                raise FastfillError(
                    f"it was not healthy within {self.times.start:.0f} s ({state.health or 'no check'})"
                )
            self.sleep(self.times.every)

    def _prove(self, release: str, result: Outcome) -> None:
        self.say("proving")
        begun = time.monotonic()
        ran = self.engine.prove(self.instance, self.times.proof)
        result.proof_s = round(time.monotonic() - begun, 1)
        proof = document(ran.out)
        result.verdict = proof.get("verdict")
        self.instance.keep_evidence(
            release,
            {
                "release": release,
                "verdict": result.verdict,
                "when": time.strftime(CLOCK_FORMAT, time.gmtime()),
                "load_s": result.load_s,
                "proof": proof,
            },
        )
        if ran.code != 0 or result.verdict != "FIRED":
            raise FastfillError(
                f"the proof says {result.verdict or 'nothing'}: {summary(proof) or _last(ran.err) or ran.code}"
            )

    def _keep(self, release: str, before: str | None, keep: bool) -> None:
        previous = self.instance.link("previous")
        # In this order a crash in between leaves `proven` naming a proven release at every moment.
        if before != release:
            self.instance.point("previous", before if keep else None)
        self.instance.point("proven", release)
        self.instance.point("candidate", None)
        ran = self.engine.unit(self.instance, "start")
        if ran.code != 0:
            self.instance.point("proven", before)
            self.instance.point("previous", previous)
            raise FastfillError(f"systemd does not take it over: {_last(ran.err)}")

    def _back(self, before: str | None, result: Outcome) -> None:
        self.say(f"it failed: {result.why}")
        result.log = self.engine.logs(self.instance).splitlines()[-20:]
        self.engine.unit(self.instance, "stop")
        self.engine.stop(self.instance)
        self.instance.point("candidate", None)
        if before is None:
            result.outcome = "stranded"
            result.why += "; a first release has no way back: the server stays out of the routers"
            return
        self.say(f"going back to {before}")
        ran = self.engine.unit(self.instance, "start")
        try:
            if ran.code != 0:
                raise FastfillError(f"the unit does not start: {_last(ran.err)}")
            self._healthy_unit()
        except FastfillError as error:
            result.outcome = "stranded"
            result.why += f"; and {before} does not serve either: {error}"
            return
        result.outcome, result.serves = "returned", before

    def _healthy_unit(self) -> None:
        """As :meth:`_healthy`, where the unit has yet to make the container."""
        end = time.monotonic() + 60
        while self.engine.state(self.instance).status == "" and time.monotonic() < end:
            self.sleep(self.times.every)
        self._healthy()


def document(text: str) -> dict[str, Any]:
    """The proof's document, empty where there is none."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def summary(proof: dict[str, Any]) -> str:
    """A proof's summary and the condition that it names, "" where there is none."""
    said, reason = str(proof.get("summary") or ""), (proof.get("reason") or {}).get("id", "")
    return f"{said} ({reason})" if reason and reason not in said else said


def _last(text: str) -> str:
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""
