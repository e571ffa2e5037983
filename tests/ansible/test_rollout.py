"""Rollouts to three hosts over ssh, each with systemd and an engine of its own; two servers on one of them."""

from __future__ import annotations

import pytest
from rig import HOSTS, Played, Rig, untouched


def test_every_server_is_proven(rig: Rig, rolled_out: Played, record_property) -> None:
    record_property("seconds", round(rolled_out.seconds))
    assert rolled_out.code == 0, rolled_out.text[-6000:]
    states = rig.states()
    assert sorted(states) == ["ffhost1/main", "ffhost2/main", "ffhost3/left", "ffhost3/right"]
    for name, one in states.items():
        assert one["verdict"] == "FIRED" and one["serving"] and one["drift"] == [], (name, one)
        assert one["proven"].startswith("good-") and one["runs"] == one["proven"] and one["in_service"]
    assert rig.audit()[-1]["verdict"] == "all proven"


def test_a_second_run_changes_nothing(rig: Rig, rolled_out: Played, record_property) -> None:
    before = rig.states()
    played = rig.play("site", release=rig.release("good"))
    record_property("seconds", round(played.seconds, 1))
    assert played.code == 0, played.text[-4000:]
    assert played.changed() == dict.fromkeys(HOSTS, 0)
    untouched(before, rig.states(), "nobody")


def test_check_is_clean_and_shows_what_a_release_would_change(rig: Rig, rolled_out: Played) -> None:
    played = rig.play("site", "--check", "--diff", release=rig.release("good"))
    assert (played.code, played.changed()) == (0, dict.fromkeys(HOSTS, 0)), played.text[-4000:]
    other = rig.play("site", "--check", "--diff", release=rig.release("other", settings={"LAB_PROFILE": "balanced"}))
    assert other.code == 0, other.text[-4000:]
    assert all(other.changed().values())
    assert "+LAB_PROFILE=balanced" in other.text and "would become other-" in other.text
    assert all(one["proven"].startswith("good-") for one in rig.states().values())


@pytest.mark.parametrize(
    ("name", "more", "why"),
    [
        ("flag-off", {"settings": {"LAB_PROFILE": "off"}}, "flag_off"),
        ("never-healthy", {"command": ["--profile", "no-such-profile"]}, "ended with exit code 2"),
    ],
)
def test_a_bad_release_never_gets_past_the_canary(
    rig: Rig, rolled_out: Played, name: str, more: dict, why: str, record_property
) -> None:
    before = rig.states()
    played = rig.play("site", release=rig.release(name, **more))
    record_property("seconds", round(played.seconds))
    assert played.code != 0
    after = rig.states()
    canary = after["ffhost1/main"]
    assert canary["proven"] == canary["runs"] == before["ffhost1/main"]["proven"], played.text[-4000:]
    assert canary["serving"] and canary["in_service"] and canary["drift"] == []
    untouched(before, after, "ffhost1")
    told = [entry for entry in rig.audit() if entry["what"] == "host"][-1]
    assert (told["host"], told["outcome"]) == ("ffhost1", "returned")
    assert why in told["why"]
    assert "no further host is touched" in played.text and rig.audit()[-1]["verdict"].startswith("stopped: ffhost1")


def test_an_image_that_is_not_the_one_it_says_touches_nobody(rig: Rig, rolled_out: Played, tmp_path) -> None:
    from rig import run

    small = tmp_path / "small.tar"
    run("bash", "-c", f"echo x > {tmp_path}/x; tar -C {tmp_path} -c x | docker import - fastfill-small:latest")
    run("docker", "save", "-o", str(small), "fastfill-small:latest")
    run("bash", "-c", f"zstd -q {small}")
    before = rig.states()
    wrong = rig.release("wrong", image="fastfill-small:latest", image_id="sha256:" + "ab" * 32, archive=f"{small}.zst")
    played = rig.play("site", release=wrong)
    assert played.code != 0 and "the archive holds sha256:" in played.text
    untouched(before, rig.states(), "nobody")


def test_a_second_controller_is_refused_and_told_who_holds_the_lock(rig: Rig, rolled_out: Played) -> None:
    words = ("lease", "acquire", "--rollout", "theirs", "--owner", "ann@desk", "--seconds", "300")
    rig.on(HOSTS[0], "python3", "/var/lib/fastfill/lock/fleet.pyz", *words)
    try:
        played = rig.play("site", release=rig.release("good"))
        assert played.code != 0 and "ann@desk is changing this cluster" in played.text
        broken = rig.play("site", "-e", "fleet_break_lock=ann@desk", release=rig.release("good"))
        assert broken.code == 0, broken.text[-3000:]
        assert [entry["lock"] for entry in rig.audit() if entry["what"] == "began"][-1] == "broken"
    finally:
        rig.on(HOSTS[0], "python3", "/var/lib/fastfill/lock/fleet.pyz", "lease", "release", "--rollout", "theirs")


def test_status_prove_and_the_kill_switch(rig: Rig, rolled_out: Played) -> None:
    shown = rig.play("status")
    assert shown.code == 0 and shown.text.count("in the routers") == 4, shown.text[-3000:]
    assert rig.play("prove").code == 0
    refused = rig.play("path", "-e", "path=off")
    assert refused.code != 0 and "with off -e path_why=WHY" in refused.text
    assert rig.play("path", "-e", "path=off", "-e", "path_why=a test").code == 0
    assert rig.play("prove").code != 0
    assert rig.play("path", "-e", "path=on").code == 0
    assert rig.play("prove").code == 0
    assert [entry["path"] for entry in rig.audit() if entry["what"] == "path"] == ["off", "on"]
