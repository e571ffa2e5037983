"""One controller at a time, and hosts that obey no other."""

from __future__ import annotations

import json
import time

from rig import HOSTS, TOOL, Played, Rig, untouched

LOCK = ("python3", "/var/lib/fastfill/lock/fleet.pyz")


def theirs(rig: Rig, verb: str, *more: str) -> None:
    """Another controller's run asks for the lock, or gives it back."""
    rig.on(HOSTS[0], *LOCK, "lease", verb, "--rollout", "theirs", *more)


def test_a_second_controller_is_refused_and_told_who_holds_the_lock(rig: Rig, rolled_out: Played) -> None:
    theirs(rig, "acquire", "--owner", "ann@desk", "--seconds", "300")
    before = rig.states()
    try:
        played = rig.play("site", release=rig.current)
        assert played.code != 0 and "ann@desk is changing this cluster" in played.text, played.text[-3000:]
        other = rig.play("rollback", "-e", "fleet_break_lock=bob@desk")
        assert other.code != 0 and "'bob@desk' does not hold it" in other.text, other.text[-3000:]
        untouched(before, rig.states(), "nobody")
        broken = rig.play("site", "-e", "fleet_break_lock=ann@desk", release=rig.current)
        assert broken.code == 0, broken.text[-3000:]
        assert [entry["lock"] for entry in rig.audit() if entry["what"] == "began"][-1] == "broken"
    finally:
        theirs(rig, "release")


def test_a_dead_controllers_lock_is_taken_over_when_it_has_run_out(rig: Rig, rolled_out: Played) -> None:
    theirs(rig, "acquire", "--owner", "ann@desk", "--seconds", "1")
    time.sleep(1.5)
    played = rig.play("site", release=rig.current)
    assert played.code == 0, played.text[-3000:]
    assert [entry["lock"] for entry in rig.audit() if entry["what"] == "began"][-1] == "expired"


def test_a_host_refuses_a_run_that_has_lost_the_lock(rig: Rig, rolled_out: Played) -> None:
    before = rig.states()
    fence = json.loads(rig.on(HOSTS[1], *TOOL, "status").stdout)["fence"]
    release = before["ffhost2/main"]["proven"]
    for rollout, epoch in (("older", fence["epoch"] - 1), ("another", fence["epoch"])):
        words = ("roll", "main", release, "--rollout", rollout, "--epoch", str(epoch))
        refused = rig.on(HOSTS[1], *TOOL, *words, check=False)
        assert refused.returncode == 1 and f"this host obeys rollout {fence['rollout']}" in refused.stderr
    untouched(before, rig.states(), "nobody")
