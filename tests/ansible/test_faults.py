"""What breaks in the middle of a rollout, and the second run that mends it.

Most of these change the settings of the second host's server alone, so that a run has one server to switch.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rig import HOSTS, TOOL, Played, Rig, run, serves, until, untouched

SECOND = "ffhost2/main"
INSTANCE = "/var/lib/fastfill/instances/main"


def only_second(rig: Rig, file: Path, value: str, **settings: object) -> list[str]:
    """Options for a run that has nothing to do but on the second host."""
    return ["-i", str(rig.write(file, {"ffhost2": {"LAB_NOTE": value}}, **settings))]


def second(rig: Rig) -> dict:
    return rig.states("ffhost2")[SECOND]


@contextlib.contextmanager
def no_ssh(rig: Rig, host: str) -> Iterator[None]:
    """A host that cannot be reached, but works on."""
    rig.on(host, "sh", "-c", "systemctl stop ssh; pkill -KILL -u root sshd; true")
    try:
        yield
    finally:
        rig.on(host, "systemctl", "start", "ssh")


def lease(rig: Rig) -> dict:
    """The cluster's lock."""
    return json.loads(rig.on(HOSTS[0], "cat", "/var/lib/fastfill/lock/lease.json").stdout)


def runs_out(rig: Rig) -> None:
    """Wait until a dead controller's lock has run out."""
    time.sleep(max(0.0, lease(rig)["expires"] - time.time()) + 1)


def test_a_host_that_is_away_is_left_out_and_told(rig: Rig, rolled_out: Played) -> None:
    before = rig.states()
    with no_ssh(rig, "ffhost2"):
        played = rig.play("site", release=rig.current)
        verdict = rig.audit()[-1]["verdict"]
        status = rig.play("status")
        back = rig.play("rollback", "--limit", "ffhost2")
    assert played.code != 0 and "ffhost2: skipped" in played.text and "does not answer" in played.text
    untouched(before, rig.states(), "nobody")
    assert "ffhost2: skipped" in verdict and "does not answer" in verdict
    assert status.code != 0 and "ffhost2: does not answer" in status.text and status.text.count("in the routers") == 3
    assert back.code != 0 and "does not answer" in back.text
    # Neither left the lock behind.
    assert rig.play("site", release=rig.current).code == 0


def test_a_full_disk_on_one_host_touches_no_server(rig: Rig, rolled_out: Played, tmp_path: Path) -> None:
    before = rig.states()
    place = f"{INSTANCE}/releases"
    full = f"cp -a {place} /tmp/kept && mount -t tmpfs -o size=256k full {place} && cp -a /tmp/kept/. {place}"
    rig.on("ffhost2", "sh", "-c", f"{full}; dd if=/dev/zero of={place}/.filler bs=1k 2>/dev/null; true")
    try:
        played = rig.play("site", *only_second(rig, tmp_path / "hosts.yml", "disk"), release=rig.current)
    finally:
        rig.on("ffhost2", "sh", "-c", f"umount {place}; rm -rf /tmp/kept")
    assert played.code != 0 and "No space left on device" in played.text, played.text[-4000:]
    after = rig.states()
    untouched(before, after, "nobody")
    assert all(serves(one) for one in after.values())
    assert "ffhost2: skipped" in rig.audit()[-1]["verdict"]


def test_a_wrong_router_key_leaves_servers_in_service(rig: Rig, rolled_out: Played, tmp_path: Path) -> None:
    before = rig.states()
    wrong = only_second(rig, tmp_path / "hosts.yml", "key", server_router_key="wrong", fleet_drain_timeout=5)
    try:
        played = rig.play("site", *wrong, release=rig.current)
        assert played.code != 0 and "answers HTTP 40" in played.text, played.text[-4000:]
        untouched(before, rig.states(), "nobody")
    finally:
        mended = rig.play("site", release=rig.current)
    assert mended.code == 0, mended.text[-4000:]
    after = rig.states()
    untouched(before, after, "nobody")
    assert all(serves(one) for one in after.values())


def test_servers_outlive_a_restart_of_the_engine(rig: Rig, rolled_out: Played) -> None:
    """A turn in the moment in which the engine does not know their health yet reloads none of them either."""
    before = rig.states()
    fence = json.loads(rig.on("ffhost2", *TOOL, "status").stdout)["fence"]
    words = ("roll", "main", before[SECOND]["proven"], "--rollout", fence["rollout"], "--epoch", str(fence["epoch"]))
    rig.on("ffhost2", "systemctl", "restart", "docker")
    assert second(rig)["health"] == "starting"
    assert json.loads(rig.on("ffhost2", *TOOL, *words).stdout)["outcome"] == "unchanged"
    until(lambda: serves(second(rig)), 60, lambda: json.dumps(second(rig)))
    untouched(before, rig.states(), "nobody")


@pytest.mark.parametrize("stage", ["Renew it while this runs", "Stage each server's release"])
def test_a_controller_that_dies_before_the_switch_leaves_all_as_it_was(
    rig: Rig, rolled_out: Played, tmp_path: Path, stage: str
) -> None:
    before = rig.states()
    options = only_second(rig, tmp_path / "hosts.yml", "dies", fleet_lease_seconds=45, fleet_lease_every=10)
    with rig.playing("site", *options, release=rig.current) as playing:
        playing.reaches(stage)
    untouched(before, rig.states(), "nobody")
    refused = rig.play("site", release=rig.current)
    assert refused.code != 0 and "holds the lock for another" in refused.text, refused.text[-3000:]
    runs_out(rig)
    again = rig.play("site", release=rig.current)
    assert again.code == 0, again.text[-4000:]
    untouched(before, rig.states(), "nobody")


def test_a_controller_that_dies_in_the_switch_is_not_needed_for_its_end(
    rig: Rig, rolled_out: Played, tmp_path: Path, record_property
) -> None:
    """Nor does anybody have to wait for its lock."""
    before = rig.states()
    options = only_second(rig, tmp_path / "hosts.yml", "orphan", fleet_lease_seconds=900)
    with rig.playing("site", *options, release=rig.current) as playing:
        playing.reaches("Wait for its proof")
        until(lambda: bool(second(rig)["candidate"]), 60, lambda: json.dumps(second(rig)))
    begun = time.monotonic()
    until(lambda: serves(second(rig)) and second(rig)["candidate"] is None, 300, lambda: json.dumps(second(rig)))
    record_property("seconds", round(time.monotonic() - begun))
    assert second(rig)["proven"] != before[SECOND]["proven"]
    untouched(before, rig.states(), "ffhost2")
    again = rig.play("site", *options, "-e", f"fleet_break_lock={lease(rig)['owner']}", release=rig.current)
    assert again.code == 0 and again.changed()["ffhost2"] == 0, again.text[-4000:]
    assert [entry["lock"] for entry in rig.audit() if entry["what"] == "began"][-1] == "broken"


def test_a_host_that_is_lost_ends_its_turn_alone(rig: Rig, rolled_out: Played, tmp_path: Path, record_property) -> None:
    """It cannot be reached any more in the middle of a switch: the server is proven all the same."""
    before = rig.states()
    options = only_second(rig, tmp_path / "hosts.yml", "alone")
    with rig.playing("site", *options, release=rig.current) as playing:
        playing.reaches("Wait for its proof")
        until(lambda: bool(second(rig)["candidate"]), 60, lambda: json.dumps(second(rig)))
        with no_ssh(rig, "ffhost2"):
            ended = playing.ends(120)
    assert ended.code != 0 and "ffhost2: unreachable" in ended.text, ended.text[-3000:]
    assert rig.audit()[-1]["verdict"].startswith("stopped: ffhost2: unreachable"), "and the lock was given back"
    begun = time.monotonic()
    until(lambda: serves(second(rig)), 300, lambda: json.dumps(second(rig)))
    record_property("seconds", round(time.monotonic() - begun))
    assert second(rig)["proven"] != before[SECOND]["proven"]
    untouched(before, rig.states(), "ffhost2")
    again = rig.play("site", *options, release=rig.current)
    assert again.code == 0 and again.changed()["ffhost2"] == 0, again.text[-4000:]


def test_a_host_that_reboots_in_its_switch_comes_back_on_what_is_proven(
    rig: Rig, rolled_out: Played, tmp_path: Path, record_property
) -> None:
    before = rig.states()
    options = only_second(rig, tmp_path / "hosts.yml", "reboot")
    with rig.playing("site", *options, release=rig.current) as playing:
        playing.reaches("Wait for its proof")
        until(lambda: second(rig)["runs"] not in (None, before[SECOND]["proven"]), 120, lambda: json.dumps(second(rig)))
        begun = time.monotonic()
        run("docker", "restart", "--time", "1", "ffhost2")
        # Whether it was asked while it was down, or only after it was up again.
        ended = playing.ends(180)
    assert ended.code != 0, ended.text[-3000:]

    until(lambda: serves(second(rig)), 300, lambda: json.dumps(second(rig)))
    record_property("seconds", round(time.monotonic() - begun))
    assert second(rig)["proven"] == before[SECOND]["proven"]
    untouched(before, rig.states(), "ffhost2")
    mended = rig.play("site", release=rig.current)
    assert mended.code == 0, mended.text[-4000:]
    assert all(serves(one) for one in rig.states().values())
