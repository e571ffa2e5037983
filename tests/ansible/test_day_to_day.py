"""Between rollouts: what runs where, does it still fire, and the kill switch."""

from __future__ import annotations

import json

from rig import HOSTS, TOOL, Played, Rig, serves, untouched


def test_status_shows_every_server_and_rebuilds_a_lost_lock(rig: Rig, rolled_out: Played) -> None:
    shown = rig.play("status")
    assert shown.code == 0 and shown.text.count("in the routers") == 4, shown.text[-3000:]
    fence = json.loads(rig.on(HOSTS[2], *TOOL, "status").stdout)["fence"]
    # The lock's host was replaced: without the others' word it would count from one, and be refused everywhere.
    rig.on(HOSTS[0], "sh", "-c", "mv /var/lib/fastfill/lock/lease.json /tmp/lease.json")
    rebuilt = rig.play("status", "-e", "status_rebuild=true")
    assert rebuilt.code == 0, rebuilt.text[-3000:]
    lease = json.loads(rig.on(HOSTS[0], "cat", "/var/lib/fastfill/lock/lease.json").stdout)
    assert lease["epoch"] == fence["epoch"]


def test_the_kill_switch_and_a_proof_that_sees_it(rig: Rig, rolled_out: Played) -> None:
    refused = rig.play("path", "-e", "path=off")
    assert refused.code != 0 and "with off -e path_why=WHY" in refused.text
    assert rig.play("path", "-e", "path=off", "-e", "path_why='a test'").code == 0
    proved = rig.play("prove")
    assert proved.code != 0 and "operator_off" in proved.text, proved.text[-3000:]
    assert rig.play("path", "-e", "path=on").code == 0
    again = rig.play("prove")
    assert again.code == 0, again.text[-3000:]
    last = [entry for entry in rig.audit() if entry["what"] == "path"][-2:]
    assert [(entry["path"], entry["why"]) for entry in last] == [("off", "a test"), ("on", "")]


def test_a_whole_proof_outside_the_routers_and_back(rig: Rig, rolled_out: Played, record_property) -> None:
    """One server after the other, with a trace; each serves on in the same container."""
    before = rig.states()
    played = rig.play("prove", "-e", "prove_drained=true", "--limit", HOSTS[2])
    record_property("seconds", round(played.seconds))
    assert played.code == 0, played.text[-4000:]
    after = rig.states()
    untouched(before, after, "nobody")
    assert all(serves(one) for one in after.values()) and rig.audit()[-1]["verdict"] == "all proven"
    for name in ("left", "right"):
        file = f"/var/lib/fastfill/instances/{name}/evidence/{after[f'{HOSTS[2]}/{name}']['proven']}.json"
        last = json.loads(rig.on(HOSTS[2], "cat", file).stdout)["last"]
        assert last["verdict"] == "FIRED"
        assert {one["witness"]: one["says"] for one in last["witnesses"]} == dict.fromkeys(
            ("counters", "log", "trace"), "seen"
        )
