"""One instance from one release to another, with every stage failing once; the real engine is used in tests/ansible."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fastfill.errors import FastfillError, NotReadyError
from fastfill.fleet import places, prune, report, serving
from fastfill.fleet.engine import Engine, Ran, State
from fastfill.fleet.places import Instance
from fastfill.fleet.switch import Switch, Times

OK = Ran(0, "", "")


class Host(Engine):
    """A host without Docker: what the last command left behind, and which release is bad in which way."""

    def __init__(self, **bad: str) -> None:
        self.bad = bad
        self.runs = ""
        self.owned = False
        self.did: list[str] = []
        self.root: Instance | None = None

    def state(self, instance: Instance) -> State:
        if not self.runs:
            return State()
        if self.bad.get(self.runs) == "ends":
            return State("exited", "", 2, self.runs, "", "c")
        health = "starting" if self.bad.get(self.runs) == "sick" else "healthy"
        return State("running", health, 0, self.runs, "", "c")

    def up(self, instance: Instance, release: str) -> Ran:
        self.did.append(f"up {release}")
        if self.bad.get(release) == "no image":
            return Ran(1, "", "No such image")
        self.runs = release
        return OK

    def stop(self, instance: Instance) -> None:
        self.runs = ""

    def unit(self, instance: Instance, verb: str) -> Ran:
        self.did.append(verb)
        proven = instance.link("proven")
        if verb == "start":
            if proven is None or self.bad.get(proven) == "unowned":
                return Ran(1, "", "unit failed")
            self.owned, self.runs = True, proven
        if verb == "stop":
            self.owned, self.runs = False, ""
        return OK

    def active(self, instance: Instance) -> bool:
        return self.owned

    def prove(self, instance: Instance, seconds: float, *more: str) -> Ran:
        if self.bad.get(self.runs) == "flag off":
            return Ran(
                1, json.dumps({"verdict": "NOT_FIRED", "summary": "0 of 2 calls", "reason": {"id": "flag_off"}}), ""
            )
        if self.bad.get(self.runs) == "silent":
            return Ran(4, "", "error: no server")
        return Ran(0, json.dumps({"verdict": "FIRED", "summary": "fired"}), "")

    def logs(self, instance: Instance, lines: int = 40) -> str:
        return "the last line"


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    one = Instance(tmp_path, "main")
    for name in ("a", "b", "c"):
        one.release(name).mkdir(parents=True)
        places.write(one.release(name) / "release.json", {"schema": 1, "image": f"i:{name}", "files": []})
    places.write(one.folder / "instance.json", {"url": "http://127.0.0.1:1", "routers": []})
    return one


def to(host: Host, instance: Instance, release: str, **more: bool):  # type: ignore[no-untyped-def]
    return Switch(host, instance, Times(0.05, 1, 0.01)).to(release, **more)


def test_a_first_release_is_proven_and_owned(instance: Instance) -> None:
    host = Host()
    done = to(host, instance, "a")
    assert (done.outcome, done.serves, done.verdict) == ("proven", "a", "FIRED") and done.proof_s is not None
    assert (instance.link("proven"), instance.link("previous"), instance.link("candidate")) == ("a", None, None)
    assert host.owned and instance.evidence("a")["proof"]["verdict"] == "FIRED"


def test_the_same_release_again_changes_nothing(instance: Instance) -> None:
    host = Host()
    to(host, instance, "a")
    host.did.clear()
    done = to(host, instance, "a")
    assert (done.outcome, done.changed, host.did) == ("unchanged", False, [])


def test_a_server_that_systemd_has_let_go_of_is_handed_back_without_a_reload(instance: Instance) -> None:
    host = Host()
    to(host, instance, "a")
    host.owned = False
    host.did.clear()
    assert (to(host, instance, "a").outcome, host.did) == ("unchanged", ["start"])


def test_a_server_whose_health_is_not_known_yet_is_not_reloaded(instance: Instance) -> None:
    class Restarted(Host):
        looks = 0

        def state(self, instance: Instance) -> State:
            self.looks += 1
            return super().state(instance)._replace(health="starting" if self.looks < 3 else "healthy")

    to(Host(), instance, "a")
    host = Restarted()
    host.runs, host.owned = "a", True
    done = Switch(host, instance, Times(5, 1, 0.01)).to("a")
    assert (done.outcome, host.did, host.looks) == ("unchanged", [], 3)


def test_the_release_before_is_kept(instance: Instance) -> None:
    host = Host()
    for name in ("a", "b"):
        to(host, instance, name)
    assert (instance.link("proven"), instance.link("previous")) == ("b", "a")
    assert prune.surplus(instance, []) == ["c"]
    assert prune.surplus(instance, ["c"]) == []


def test_old_releases_go_with_the_images_that_nothing_else_needs(instance: Instance) -> None:
    class Images(Host):
        def run(self, argv: list[str], timeout: float | None = 300.0, cwd: Path | None = None) -> Ran:
            self.did.append(" ".join(argv))
            return OK

    host = Images()
    to(host, instance, "a")
    instance.release("d").mkdir()
    places.write(instance.release("d") / "release.json", {"schema": 1, "image": "i:a", "files": []})
    done = prune.prune(host, [instance], ["b"])
    assert done == {"changed": True, "releases": {"main": ["c", "d"]}, "images": ["i:c"]}
    assert instance.releases() == ["a", "b"] and host.did[-1] == "docker rmi i:c"
    assert not prune.prune(host, [instance], ["b"])["changed"]


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("flag off", "NOT_FIRED: 0 of 2 calls (flag_off)"),
        ("silent", "the proof says nothing: error: no server"),
        ("ends", "ended with exit code 2"),
        ("sick", "not healthy within"),
        ("no image", "No such image"),
        ("unowned", "systemd does not take it over"),
    ],
)
def test_a_bad_release_goes_back_by_itself(instance: Instance, how: str, why: str) -> None:
    host = Host(b=how)
    to(host, instance, "c")
    to(host, instance, "a")
    done = to(host, instance, "b")
    assert (done.outcome, done.serves) == ("returned", "a")
    assert why in done.why
    assert done.log == ["the last line"]
    assert (instance.link("proven"), instance.link("previous"), instance.link("candidate")) == ("a", "c", None)
    assert host.owned and host.runs == "a"


def test_a_bad_first_release_has_no_way_back(instance: Instance) -> None:
    host = Host(a="flag off")
    done = to(host, instance, "a")
    assert (done.outcome, done.serves, host.runs) == ("stranded", None, "")
    assert "no way back" in done.why and instance.link("proven") is None


def test_the_way_back_may_fail_too(instance: Instance) -> None:
    host = Host(b="flag off")
    to(host, instance, "a")
    host.bad["a"] = "unowned"
    done = to(host, instance, "b")
    assert done.outcome == "stranded" and "a does not serve either" in done.why


def test_a_release_found_to_be_bad_is_not_kept_to_go_back_to(instance: Instance) -> None:
    host = Host()
    for name in ("a", "b"):
        to(host, instance, name)
    to(host, instance, "a", keep=False)
    assert (instance.link("proven"), instance.link("previous")) == ("a", None)


def test_two_switches_at_once_are_refused(instance: Instance) -> None:
    with instance.alone(), pytest.raises(NotReadyError, match="still going on"):
        to(Host(), instance, "a")


def test_a_broken_off_switch_shows_and_is_mended_by_the_next(instance: Instance) -> None:
    host = Host()
    to(host, instance, "a")
    instance.point("candidate", "b")
    assert "a switch to b was broken off" in report.drift(instance, "a", "a", "running", True)[0]
    assert to(host, instance, "a").outcome == "proven"
    assert instance.link("candidate") is None


def test_a_release_of_another_schema_is_refused(instance: Instance) -> None:
    places.write(instance.release("a") / "release.json", {"schema": 2})
    with pytest.raises(NotReadyError, match="has schema 2, this version reads 1"):
        to(Host(), instance, "a")


def test_the_unit_runs_what_is_proven_through_an_engine_that_comes_and_goes(instance: Instance) -> None:
    class Restarting(Host):
        waits = 0

        def wait(self, instance: Instance) -> Ran:
            self.waits += 1
            return Ran(1, "", "Cannot connect") if self.waits < 3 else Ran(0, "137\n", "")

    host = Restarting()
    with pytest.raises(NotReadyError, match="nothing was proven"):
        serving.serve(host, instance)
    instance.point("proven", "a")
    assert serving.serve(host, instance, every=0.01) == 137
    assert host.did == ["up a"] and host.waits == 3


def test_a_proven_release_that_cannot_start_says_so(instance: Instance) -> None:
    instance.point("proven", "a")
    with pytest.raises(FastfillError, match="No such image"):
        serving.serve(Host(a="no image"), instance)
