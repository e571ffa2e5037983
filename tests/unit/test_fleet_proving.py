"""What a proof between rollouts asks for, and whom it does not disturb."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from fastfill.errors import NotReadyError
from fastfill.fleet import drain, inspection, places, proving
from fastfill.fleet.engine import Engine, Ran, State
from fastfill.fleet.places import Instance


class Told(Engine):
    """Remembers the command; the server runs release a."""

    def __init__(self, verdict: str = "FIRED") -> None:
        self.argv: list[str] = []
        self.verdict = verdict

    def state(self, instance: Instance) -> State:
        return State("running", "healthy", 0, "a", "", "c")

    def run(self, argv: list[str], timeout: float | None = 300.0, cwd: Path | None = None) -> Ran:
        self.argv = argv
        document = {"verdict": self.verdict, "summary": "s", "witnesses": [{"witness": "counters", "says": "seen"}]}
        return Ran(int(self.verdict != "FIRED"), json.dumps(document), "")


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    one = Instance(tmp_path, "main")
    one.folder.mkdir(parents=True)
    places.write(one.folder / "instance.json", {"url": "http://127.0.0.1:1", "routers": []})
    return one


def test_a_server_in_the_routers_is_proven_lightly(instance: Instance) -> None:
    engine = Told()
    instance.serve(True)
    said = proving.again(engine, instance, 60)
    assert said["ok"] and said["witnesses"] == [{"witness": "counters", "says": "seen"}]
    assert engine.argv[-3:] == ["--deadline", "60", "--light"] and "trace" not in " ".join(engine.argv)
    assert instance.evidence("a")["last"]["verdict"] == "FIRED"


def test_a_whole_proof_is_for_a_server_that_nobody_uses(instance: Instance) -> None:
    engine = Told()
    instance.serve(True)
    with pytest.raises(NotReadyError, match="takes requests"):
        proving.again(engine, instance, 60, drained=True)
    assert engine.argv == []
    instance.serve(False)
    assert proving.again(engine, instance, 60, drained=True)["ok"]
    assert engine.argv[-2:] == ["--witness", "counters,log,trace"] and "--light" not in engine.argv


def test_a_proof_that_failed_is_kept_and_the_one_of_the_rollout_too(instance: Instance) -> None:
    instance.keep_evidence("a", {"verdict": "FIRED", "when": "2026-11-30T12:00:00Z"})
    assert not proving.again(Told("NOT_FIRED"), instance, 60)["ok"]
    kept = instance.evidence("a")
    assert (kept["verdict"], kept["last"]["verdict"]) == ("FIRED", "NOT_FIRED")


def test_a_proof_under_which_a_switch_began_says_nothing_of_the_release(instance: Instance) -> None:
    with contextlib.ExitStack() as switch:

        class Stopped(Told):
            def run(self, argv: list[str], timeout: float | None = 300.0, cwd: Path | None = None) -> Ran:
                switch.enter_context(instance.alone())
                return super().run(argv, timeout, cwd)

        said = proving.again(Stopped("NOT_FIRED"), instance, 60)
    assert (said["ok"], said["changed"]) == (False, False) and "a switch goes on" in said["summary"]
    assert instance.evidence("a") == {}


def test_a_server_is_idle_while_it_is_inspected_and_serves_again(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, did = Told("NOT_FIRED"), []

    def drained(one: Instance, seconds: float, *, back: bool) -> dict[str, Any]:
        did.append(f"drain {seconds:.0f}")
        one.serve(False)
        return {"ok": True, "why": ""}

    def entered(one: Instance) -> dict[str, Any]:
        did.append("enter")
        one.serve(True)
        return {"ok": True, "why": ""}

    monkeypatch.setattr(drain, "drain", drained)
    monkeypatch.setattr(drain, "enter", entered)
    instance.serve(True)
    said = inspection.inspect(engine, instance, 60, 30)
    assert (said["ok"], said["verdict"], said["back"]) == (False, "NOT_FIRED", True)
    assert did == ["drain 30", "enter"] and "trace" in " ".join(engine.argv) and instance.in_service()
    # One that was out before stays out.
    instance.serve(False)
    assert inspection.inspect(Told(), instance, 60, 30)["ok"] and did[2:] == ["drain 30"]
    # One whose last turn was broken off is out, and not for good.
    instance.note_away(True)
    assert inspection.inspect(Told(), instance, 60, 30)["back"] and did[3:] == ["drain 30", "enter"]
    assert instance.in_service() and not instance.is_away()


def test_a_busy_server_is_not_inspected(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Told()
    busy = {"ok": False, "why": "3 requests are still there"}
    monkeypatch.setattr(drain, "drain", lambda one, seconds, back: busy)
    instance.serve(True)
    said = inspection.inspect(engine, instance, 60, 30)
    assert (said["ok"], said["summary"]) == (False, "3 requests are still there")
    assert engine.argv == [] and instance.in_service()
