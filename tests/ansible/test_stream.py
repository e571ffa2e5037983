"""Under a steady stream of requests through a real router: a planned rollout, bad or good, loses none of them."""

from __future__ import annotations

import json
import time
from typing import Any

from rig import Played, Rig, serves, until, untouched
from test_bad_releases import stays_with_the_canary
from traffic import Router, Traffic

SOAK = {
    "fleet_serial": [1, 2],
    "fleet_soak_seconds": 20,
    "fleet_soak_requests": 20,
    # All servers share these cores with the rollout: their times to the first token say nothing of the release.
    "fleet_soak_limits": {"ttft": 20.0},
}


def test_a_planned_rollout_loses_no_request(rig: Rig, router: Router, rolled_out: Played, record_property) -> None:
    """First a release with the flag off, which the canary gives back; then a good one on every server, after a soak."""
    before = rig.states()
    # Not so quickly that the clients take these few cores from the servers that start.
    with Traffic(router.url, pause=3.0) as traffic:
        off = rig.play("site", release=rig.release("flag-off", settings={"LAB_PROFILE": "off"}))
        stays_with_the_canary(rig, off, before, "flag_off")
        bad = dict(traffic.good)
        following = rig.release("next", environment={"RELEASE": "next"})
        good = rig.play("site", "-e", json.dumps(SOAK), release=following, timeout=1200)
        assert good.code == 0, good.text[-6000:]
        rig.leaves(following)
        assert all(one["proven"].startswith("next-") and serves(one) for one in rig.states().values())
        traffic.reaches(500, 200, 600)
    record_property(
        "answered", {"bad": bad, "both": traffic.good, "seconds": [round(off.seconds), round(good.seconds)]}
    )
    assert traffic.lost == [], traffic.lost[:20]
    (soaked,) = [entry for entry in rig.audit() if entry["what"] == "soak" and entry["rollout"] == _last(rig)]
    assert soaked["host"] == "ffhost1" and soaked["verdict"]["state"] == "good", soaked
    assert soaked["verdict"]["canary"]["requests"] >= SOAK["fleet_soak_requests"]


def _last(rig: Rig) -> str:
    """The run that began last."""
    return str([entry for entry in rig.audit() if entry["what"] == "began"][-1]["rollout"])


def again_up(rig: Rig, before: dict[str, dict[str, Any]]) -> bool:
    """Whether the second host's server serves again since it was started anew."""
    one = rig.states("ffhost2")["ffhost2/main"]
    return serves(one) and one["started"] != before["ffhost2/main"]["started"]


def test_a_server_that_dies_loses_the_streams_that_it_had_and_nothing_else(
    rig: Rig, router: Router, rolled_out: Played, record_property
) -> None:
    before = rig.states()
    with Traffic(router.url, 2, 2) as traffic:
        traffic.reaches(10, 10, 60)
        rig.on("ffhost2", "docker", "kill", "--signal", "KILL", "fastfill-main-server-1")
        begun = time.monotonic()
        until(lambda: again_up(rig, before), 300, lambda: json.dumps(rig.states("ffhost2")))
        again = round(time.monotonic() - begun)
        served = dict(traffic.good)
        traffic.reaches(served["plain"] + 10, served["stream"] + 10, 120)
    record_property("again", {"seconds": again, "lost": traffic.lost})
    assert all(" stream: " in one for one in traffic.lost) and len(traffic.lost) <= 2, traffic.lost
    untouched(before, rig.states(), "ffhost2")


def test_a_router_that_was_killed_knows_all_servers_again(
    rig: Rig, router: Router, rolled_out: Played, record_property
) -> None:
    urls = {one["url"] for one in rig.states().values()}
    with Traffic(router.url, 2, 1) as traffic:
        traffic.reaches(5, 5, 60)
        router.kill()
        router.start()
        begun = time.monotonic()
        until(lambda: router.healthy() == urls, 60, lambda: f"{router.healthy()} of {urls}")
        again = time.monotonic() - begun
        lost, served = len(traffic.lost), dict(traffic.good)
        traffic.reaches(served["plain"] + 10, served["stream"] + 5, 120)
        late = traffic.lost[lost:]
    record_property("again", {"seconds": round(again, 1), "lost": lost})
    # What was lost meanwhile was with the router that died, or came while it knew nobody.
    assert again < 30 and late == []
