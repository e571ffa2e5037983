"""Under a steady stream of requests through a real router: a planned rollout, bad or good, loses none of them."""

from __future__ import annotations

import time

from rig import Played, Rig, serves, until
from test_bad_releases import stays_with_the_canary
from traffic import Router, Traffic


def test_a_planned_rollout_loses_no_request(rig: Rig, router: Router, rolled_out: Played, record_property) -> None:
    """First a release with the flag off, which the canary gives back; then a good one on every server."""
    before = rig.states()
    with Traffic(router.url) as traffic:
        off = rig.play("site", release=rig.release("flag-off", settings={"LAB_PROFILE": "off"}))
        stays_with_the_canary(rig, off, before, "flag_off")
        bad = dict(traffic.good)
        following = rig.release("next", environment={"RELEASE": "next"})
        good = rig.play("site", "-e", '{"fleet_serial": [1, 2]}', release=following, timeout=1200)
        assert good.code == 0, good.text[-6000:]
        rig.current = following
        assert all(one["proven"].startswith("next-") and serves(one) for one in rig.states().values())
        traffic.reaches(500, 200, 300)
    record_property(
        "answered", {"bad": bad, "both": traffic.good, "seconds": [round(off.seconds), round(good.seconds)]}
    )
    assert traffic.lost == [], traffic.lost[:20]


def test_a_router_that_was_killed_knows_all_servers_again(
    rig: Rig, router: Router, rolled_out: Played, record_property
) -> None:
    urls = {one["url"] for one in rig.states().values()}
    with Traffic(router.url, 2, 1) as traffic:
        time.sleep(3)
        router.kill()
        router.start()
        begun = time.monotonic()
        until(lambda: router.healthy() == urls, 60, lambda: f"{router.healthy()} of {urls}")
        again = time.monotonic() - begun
        lost, served = len(traffic.lost), dict(traffic.good)
        traffic.reaches(served["plain"] + 10, served["stream"] + 5, 120)
        late = [one for one in traffic.lost[lost:] if "ConnectError" not in one]
    record_property("again", {"seconds": round(again, 1), "lost": lost})
    assert again < 30 and late == []
