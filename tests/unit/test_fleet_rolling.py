"""A server's whole turn: out of the routers, to a release, in again; and what a turn that was broken off leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fastfill.errors import FastfillError, NotReadyError
from fastfill.fleet import drain, places, proving, rolling
from fastfill.fleet.engine import Engine, Ran, State
from fastfill.fleet.places import Instance
from fastfill.fleet.switch import Outcome, Switch


class Turn(Switch):
    """A switch of which only its outcome matters."""

    def __init__(self, instance: Instance, outcome: str = "proven", serves: str | None = "b") -> None:
        super().__init__(Engine(), instance)
        self.ends, self.serves = outcome, serves
        self.changes: list[str] = []

    def change(self, release: str, *, keep: bool = True) -> Outcome:
        self.changes.append(release)
        assert not self.instance.in_service() and self.instance.is_away() == (self.instance.link("proven") is not None)
        return Outcome("main", release, self.ends, serves=self.serves)


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Instance:
    one = Instance(tmp_path, "main")
    for name in ("a", "b"):
        one.release(name).mkdir(parents=True)
        places.write(one.release(name) / "release.json", {"schema": 1, "image": f"i:{name}", "files": []})
    places.write(one.folder / "instance.json", {"url": "http://127.0.0.1:1", "routers": []})
    one.point("proven", "a")
    one.serve(True)
    return one


def test_a_turn_ends_in_the_routers(instance: Instance) -> None:
    done = rolling.roll(Turn(instance), "b", 5)
    assert (done.outcome, done.serves) == ("proven", "b") and done.drain_s is not None and done.enter_s is not None
    assert instance.in_service() and not instance.is_away()


def test_a_server_that_serves_nothing_stays_out(instance: Instance) -> None:
    assert rolling.roll(Turn(instance, "stranded", None), "b", 5).outcome == "stranded"
    assert not instance.in_service() and not instance.is_away()


def test_a_busy_server_is_left_alone(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain, "drain", lambda one, seconds, back: {"ok": False, "why": "7 requests", "waited_s": 1})
    turn = Turn(instance)
    done = rolling.roll(turn, "b", 5)
    assert (done.outcome, done.why, done.changed, done.serves, turn.changes) == (
        "skipped",
        "7 requests",
        False,
        "a",
        [],
    )


def test_a_run_that_lost_the_lock_while_it_drained_changes_nothing(instance: Instance) -> None:
    asked: list[bool] = []

    def heed() -> None:
        asked.append(instance.in_service())
        if len(asked) == 2:
            raise FastfillError("this host obeys another")

    turn = Turn(instance)
    with pytest.raises(FastfillError, match="obeys another"):
        rolling.roll(turn, "b", 5, heed=heed)
    assert asked == [True, False] and turn.changes == []
    assert instance.in_service() and not instance.is_away()


def test_a_router_that_does_not_take_it_in_is_a_failure(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain, "enter", lambda one: {"ok": False, "why": "r holds it for dead", "changed": True})
    assert rolling.roll(Turn(instance), "b", 5).outcome == "failed"


class Server(Engine):
    """What runs, and how it was proven."""

    def __init__(self, state: State | str) -> None:
        self.is_now = state
        self.did: list[Any] = []

    def state(self, instance: Instance) -> State:
        if isinstance(self.is_now, str):
            raise FastfillError(self.is_now)
        return self.is_now

    def prove(self, instance: Instance, seconds: float, *more: str) -> Ran:
        self.did.append(more)
        return Ran(0, '{"verdict": "FIRED", "summary": "fired"}', "")

    def run(self, argv: list[str], timeout: float | None = 300.0, cwd: Path | None = None) -> Ran:
        self.did.append(argv)
        return Ran(0, "", "")


def test_a_turn_that_was_broken_off_is_put_back_in_service_by_the_timer(instance: Instance) -> None:
    server = Server(State("running", "healthy", 0, "a"))
    instance.serve(False)
    assert not rolling.recover(server, instance), "it was taken out for good"
    instance.note_away(True)
    with instance.alone():
        assert not rolling.recover(server, instance), "its turn goes on"
    assert rolling.recover(server, instance) and instance.in_service() and not instance.is_away()
    assert server.did == [["systemctl", "is-active", "--quiet", "fastfill@main.service"]], "it was not touched"


def test_a_turn_that_ends_while_the_timer_looks_is_not_undone(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(State())
    instance.note_away(True)
    instance.serve(False)

    def ended(one: Instance) -> bool:
        one.note_away(False)
        return False

    monkeypatch.setattr(Instance, "switching", ended)
    assert not rolling.recover(server, instance) and not instance.in_service() and server.did == []


@pytest.mark.parametrize("starts", [True, False])
def test_a_candidate_whose_turn_was_broken_off_gets_no_requests(instance: Instance, starts: bool) -> None:
    """It runs, unproven: the unit puts the proven release in its place, or nothing serves."""

    class LetGo(Server):
        def active(self, instance: Instance) -> bool:
            return False

        def unit(self, instance: Instance, verb: str) -> Ran:
            self.did.append(verb)
            return Ran(int(verb == "start" and not starts), "", "")

        def stop(self, instance: Instance) -> None:
            self.did.append("gone")

    instance.serve(False)
    instance.note_away(True)
    instance.point("candidate", "b")
    server = LetGo(State("running", "healthy", 0, "b"))
    assert rolling.recover(server, instance)
    assert server.did == ["reset-failed", "start"] + ([] if starts else ["gone"])
    assert instance.link("candidate") is None and instance.in_service()


def test_a_retired_server_is_out_and_no_longer_proven(instance: Instance) -> None:
    rolling.retire(Server(State()), instance)
    assert not instance.in_service() and instance.link("proven") is None


@pytest.mark.parametrize("proven", [True, False])
def test_only_what_is_proven_goes_back_when_it_stays_busy(
    instance: Instance, monkeypatch: pytest.MonkeyPatch, proven: bool
) -> None:
    """And one that is retired is stopped, busy or not: the routers must not send it anything until then."""
    told: list[bool] = []

    def busy(one: Instance, seconds: float, *, back: bool) -> dict[str, Any]:
        told.append(back)
        return {"ok": False, "why": "7 requests", "waited_s": 1}

    monkeypatch.setattr(drain, "drain", busy)
    if not proven:
        instance.point("proven", None)
    assert rolling.roll(Turn(instance), "b", 5).outcome == "skipped"
    assert rolling.retire(Server(State()), instance)["idle"] is False
    assert told == [proven, False]


def test_a_server_in_service_is_proven_lightly(instance: Instance) -> None:
    server = Server(State("running", "healthy", 0, "a"))
    assert proving.again(server, instance, 9)["ok"] and server.did == [("--light",)]
    assert instance.evidence("a")["last"]["verdict"] == "FIRED"


@pytest.mark.parametrize("state", [State(), State("exited", "", 1, "a"), "the engine does not answer"])
def test_that_nothing_could_be_proven_is_kept_too(instance: Instance, state: State | str) -> None:
    instance.keep_evidence("a", {"verdict": "FIRED", "last": {"verdict": "FIRED"}})
    said = proving.again(Server(state), instance, 9)
    assert not said["ok"] and instance.evidence("a")["last"]["verdict"] is None
    assert instance.evidence("a")["verdict"] == "FIRED"


def test_a_switch_that_goes_on_is_no_failed_proof(instance: Instance) -> None:
    with instance.alone():
        assert not proving.again(Server(State()), instance, 9)["ok"]
        with pytest.raises(NotReadyError):
            rolling.mend(Turn(instance), "a")
    assert instance.evidence("a") == {}
