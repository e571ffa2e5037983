"""A good release on three hosts over ssh, each with systemd and an engine of its own; two servers on one of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rig import HOSTS, Played, Rig, run, serves, untouched

SERVERS = ["ffhost1/main", "ffhost2/main", "ffhost3/left", "ffhost3/right"]


def test_every_server_is_proven(rig: Rig, rolled_out: Played, record_property) -> None:
    record_property("seconds", round(rolled_out.seconds))
    assert rolled_out.code == 0, rolled_out.text[-6000:]
    states = rig.states()
    assert sorted(states) == SERVERS
    name_of = f"{rig.current['name']}-"
    for name, one in states.items():
        assert serves(one) and one["verdict"] == "FIRED" and one["proven"].startswith(name_of), (name, one)
    assert rig.audit()[-1]["verdict"] == "all proven"
    shares = [round(share(one), 1) for entry in rig.audit() if entry["what"] == "host" for one in entry["servers"]]
    record_property("own", shares)


def share(turn: dict[str, Any]) -> float:
    """What a server's turn takes beside its load and its proof, in seconds; without a load there is no share."""
    beside = [turn.get(name) or 0.0 for name in ("drain_s", "seconds", "enter_s")]
    return sum(beside) - (turn.get("load_s") or 0.0) - (turn.get("proof_s") or 0.0)


def test_a_second_run_changes_nothing(rig: Rig, rolled_out: Played, record_property) -> None:
    before = rig.states()
    played = rig.play("site", release=rig.current)
    record_property("seconds", round(played.seconds, 1))
    assert played.code == 0, played.text[-4000:]
    assert played.changed() == dict.fromkeys(HOSTS, 0), played.text[-6000:]
    untouched(before, rig.states(), "nobody")


def test_check_is_clean_and_shows_what_a_release_would_change(rig: Rig, rolled_out: Played) -> None:
    played = rig.play("site", "--check", "--diff", release=rig.current)
    assert (played.code, played.changed()) == (0, dict.fromkeys(HOSTS, 0)), played.text[-4000:]
    before = rig.states()
    other = rig.play("site", "--check", "--diff", release=rig.release("other", settings={"LAB_PROFILE": "balanced"}))
    assert other.code == 0, other.text[-4000:]
    assert all(other.changed().values())
    assert "+LAB_PROFILE=balanced" in other.text and "would become other-" in other.text
    assert rig.states() == before


def test_an_image_that_is_not_the_one_it_says_touches_nobody(rig: Rig, rolled_out: Played, tmp_path: Path) -> None:
    small = tmp_path / "small.tar"
    run("bash", "-c", f"echo x > {tmp_path}/x; tar -C {tmp_path} -c x | docker import - fastfill-small:latest")
    run("docker", "save", "-o", str(small), "fastfill-small:latest")
    run("bash", "-c", f"zstd -q {small}")
    before = rig.states()
    wrong = rig.release("wrong", image="fastfill-small:latest", image_id="sha256:" + "ab" * 32, archive=f"{small}.zst")
    played = rig.play("site", release=wrong)
    assert played.code != 0 and "the archive holds sha256:" in played.text, played.text[-3000:]
    untouched(before, rig.states(), "nobody")
    assert "the archive holds sha256:" in rig.audit()[-1]["verdict"]
