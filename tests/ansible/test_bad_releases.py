"""Bad releases get no further than the canary, or than their batch; then the way back by hand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from rig import Played, Rig, serves, untouched


def stays_with_the_canary(rig: Rig, played: Played, before: dict[str, dict[str, Any]], why: str) -> None:
    """The canary went back by itself and serves, nobody else was touched, and the audit log says why."""
    assert played.code != 0, played.text[-4000:]
    after = rig.states()
    canary = after["ffhost1/main"]
    assert canary["proven"] == before["ffhost1/main"]["proven"] and serves(canary), played.text[-6000:]
    untouched(before, after, "ffhost1")
    told = [entry for entry in rig.audit() if entry["what"] == "host"][-1]
    assert (told["host"], told["outcome"]) == ("ffhost1", "returned")
    assert why in told["why"], told["why"]
    assert "no further host is touched" in played.text and rig.audit()[-1]["verdict"].startswith("stopped: ffhost1")


def test_a_broken_kernel_never_gets_past_the_canary(rig: Rig, rolled_out: Played, record_property) -> None:
    before = rig.states()
    # As an option: the lab's server inherits none of aiter's variables.
    words = ["--profile", "long-context", "--model", "dense", "--env", "AITER_EMULATOR_FAULT=revision_b"]
    release = rig.release("broken-kernel", command=words)
    played = rig.play("site", release=release)
    record_property("seconds", round(played.seconds))
    stays_with_the_canary(rig, played, before, "the proof says WRONG")


def test_a_canary_that_nobody_uses_cannot_be_judged_and_goes_back(
    rig: Rig, rolled_out: Played, record_property
) -> None:
    """It fires and answers right, and its soak ends without enough traffic."""
    before = rig.states()
    soak = [f"-efleet_soak_{name}={value}" for name, value in (("seconds", 5), ("requests", 9000), ("timeout", 15))]
    played = rig.play("site", *soak, release=rig.release("unsoaked", environment={"RELEASE": "unsoaked"}))
    record_property("seconds", round(played.seconds))
    assert played.code != 0, played.text[-4000:]
    after = rig.states()
    canary = after["ffhost1/main"]
    assert canary["proven"] == before["ffhost1/main"]["proven"] and serves(canary), played.text[-6000:]
    assert canary["previous"] != before["ffhost1/main"]["proven"] and not str(canary["previous"]).startswith("unsoaked")
    untouched(before, after, "ffhost1")
    host, soaked, ended = rig.audit()[-3:]
    assert (host["what"], host["outcome"], soaked["what"]) == ("host", "proven", "soak")
    assert soaked["verdict"]["state"] == "bad" and soaked["verdict"]["canary"]["requests"] < 9000
    assert re.match(r"stopped: ffhost1: returned: soak: \d+ of 9000 requests in", ended["verdict"]), ended


def test_one_bad_host_of_a_batch_of_two_leaves_both_serving(
    rig: Rig, rolled_out: Played, tmp_path: Path, record_property
) -> None:
    """The second host's own settings are wrong: its server never gets healthy. No third host begins."""
    before = rig.states()
    inventory = rig.write(tmp_path / "hosts.yml", {"ffhost2": {"LAB_PROFILE": "no-such-profile"}})
    two = rig.release("two", environment={"RELEASE": "two"})
    played = rig.play("site", "-i", str(inventory), "-e", '{"fleet_serial": [2]}', release=two)
    record_property("seconds", round(played.seconds))
    assert played.code != 0, played.text[-4000:]
    after = rig.states()
    good, bad = after["ffhost1/main"], after["ffhost2/main"]
    assert good["proven"].startswith("two-") and serves(good), played.text[-6000:]
    assert bad["proven"] == before["ffhost2/main"]["proven"] and serves(bad), played.text[-6000:]
    untouched(before, after, "ffhost1", "ffhost2")
    told = {entry["host"]: entry for entry in rig.audit()[-4:] if entry["what"] == "host"}
    assert told["ffhost1"]["outcome"] == "proven" and told["ffhost2"]["outcome"] == "returned"
    assert "ended with exit code 2 before it was healthy" in told["ffhost2"]["why"]


def test_one_host_goes_back_to_what_was_proven_before(rig: Rig, rolled_out: Played, record_property) -> None:
    """After the batch of two: the first host has a release that was proven before, and its own measured load time."""
    before = rig.states()
    assert before["ffhost1/main"]["proven"].startswith("two-"), "the test before leaves it so"
    played = rig.play("rollback", "--limit", "ffhost1")
    record_property("seconds", round(played.seconds))
    assert played.code == 0, played.text[-4000:]
    after = rig.states()
    assert after["ffhost1/main"]["proven"] == rig.states("ffhost2")["ffhost2/main"]["proven"] and serves(
        after["ffhost1/main"]
    )
    untouched(before, after, "ffhost1")
    said = re.search(r"main: two-\w+\s+->\s+\w+-\w+\s+in\s+about\s+(\d+)\s+s,", played.text)
    assert said and 60 < int(said[1]) < 500, played.text[-3000:]
    assert played.text.index(said[0]) < played.text.index("Start its turn"), "the time is said first"
    assert rig.audit()[-1]["verdict"] == "back"


def test_no_way_back_to_what_was_never_proven(rig: Rig, rolled_out: Played) -> None:
    before = rig.states()
    played = rig.play("rollback", "-e", "rollback_to=never-seen")
    assert played.code != 0 and "no never-seen that was proven" in played.text, played.text[-3000:]
    untouched(before, rig.states(), "nobody")
    assert "no never-seen that was proven" in rig.audit()[-1]["verdict"], "and the lock was given back"
