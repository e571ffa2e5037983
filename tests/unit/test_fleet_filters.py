"""The filters that the playbooks decide with."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError

SOURCE = Path(__file__).parents[2] / "ansible/filter_plugins/fleet.py"
_spec = importlib.util.spec_from_file_location("fleet_filters", SOURCE)
assert _spec is not None and _spec.loader is not None
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
FILTERS: dict[str, Any] = _module.FilterModule().filters()
RELEASE = {"name": "a", "image": "x:1", "image_id": "sha256:" + "0" * 64}
FIRED = {"verdict": "FIRED", "load_s": 40.0, "when": "2026-11-30T12:00:00Z"}


def state(name: str, **more: Any) -> dict[str, Any]:
    known = {"a-1": {**FIRED, "name": "a"}, "b-1": {**FIRED, "name": "b", "when": "2026-11-30T13:00:00Z"}}
    return {
        "name": name,
        "proven": "b-1",
        "previous": "a-1",
        "runs": "b-1",
        "serving": True,
        "in_service": True,
        "drift": [],
        "known": known,
        **more,
    }


@pytest.mark.parametrize(
    ("more", "due"),
    [
        ({}, False),
        ({"proven": "a-1"}, True),
        ({"serving": False}, True),
        ({"drift": ["systemd does not own the server"]}, True),
        ({"in_service": False}, True),
    ],
)
def test_what_is_due(more: dict[str, Any], due: bool) -> None:
    one = [{"name": "main", "port": 1}]
    assert bool(FILTERS["fleet_due"](one, [state("main", **more)], {"main": "b-1"})) is due
    assert FILTERS["fleet_due"](one, [], {"main": "b-1"}) == one


def test_where_a_server_goes_back_to_and_how_long_it_takes() -> None:
    states = [state("main")]
    assert FILTERS["fleet_back"](states, "") == {"main": "a-1"}
    assert FILTERS["fleet_back"](states, "b") == {"main": "b-1"}
    assert FILTERS["fleet_time_back"](states, {"main": "a-1"}, 900)[0].startswith("main: b-1 -> a-1 in about 100 s")
    for wrong in (
        lambda: FILTERS["fleet_back"](states, "c"),
        lambda: FILTERS["fleet_back"]([state("m", previous=None)], ""),
    ):
        with pytest.raises(AnsibleFilterError, match="that was proven"):
            wrong()


def test_errors_say_what_where_and_what_next() -> None:
    with pytest.raises(AnsibleFilterError, match=r"error: the image is not pinned.*where: .*next: "):
        FILTERS["fleet_checked"]({**RELEASE, "image_id": ""})


def test_what_is_staged_for_two_servers_of_a_host() -> None:
    given = [{"name": "left", "port": 30000, "gpus": [0, 1]}, {"name": "right", "port": 30001, "gpus": [2, 3]}]
    instances = FILTERS["fleet_instances"](given, "10.0.0.1", "/r", {"api_key": "k", "router_key": "r"})
    assert instances[1]["settings"] == {"FASTFILL_API_KEY_FILE": "/r/instances/right/secrets/api_key"}
    staged = FILTERS["fleet_staged"](
        RELEASE, instances, {"compose.yaml": "x"}, ["compose.yaml"], "10.0.0.1", ["http://r:1"]
    )
    ids = FILTERS["fleet_identities"](RELEASE, instances, {"compose.yaml": "x"})
    assert [one["release"] for one in staged] == [ids["left"], ids["right"]] and ids["left"] != ids["right"]
    assert staged[0]["about"] == {
        "schema": 1,
        "name": "left",
        "url": "http://10.0.0.1:30000",
        "routers": ["http://r:1"],
    }
    assert "KEY_FILE=/r/instances/left/secrets/api_key" in staged[0]["files"][".env"]
    assert "FASTFILL_TP=2" in staged[0]["files"][".env"]


def test_a_host_that_never_came_to_its_end_has_no_report() -> None:
    hostvars = {
        "a": {"server_report": {"outcome": "proven"}, "server_done": True},
        "b": {"server_report": {"outcome": "unchanged"}, "server_done": False},
        "c": {"server_report": {"outcome": "proven"}, "server_done": True},
    }
    assert FILTERS["fleet_reports"](hostvars, ["a", "b", "c"], ["a", "b"]) == {"a": {"outcome": "proven"}}


def test_the_table_and_the_epoch_come_from_the_hosts() -> None:
    answer = {"fence": {"epoch": 4}, "instances": [state("main", drift=["x"], verdict="FIRED")]}
    hostvars = {"h": {"status_asked": {"answer": answer}}, "gone": {"status_asked": {"unreachable": True}}}
    shown = ["h/main: b-1 (FIRED, in the routers) x", "gone: does not answer"]
    assert FILTERS["fleet_table"](hostvars, ["h", "gone"]) == shown
    assert FILTERS["fleet_epoch"](hostvars, ["h", "gone"]) == "4"


def test_who_copies_a_model_from_whom() -> None:
    whole, absent = {"state": "whole", "tried": []}, {"state": "absent", "tried": []}
    hostvars = {"c": {"model_state": absent}, "a": {"model_state": whole}, "b": {"model_state": absent}, "broken": {}}
    states = FILTERS["fleet_models"](hostvars, ["c", "a", "b", "broken"])
    assert sorted(states) == ["a", "b", "c"]
    assert FILTERS["fleet_fan_out"](states, 2) == {"b": "a", "c": "a"}
    assert FILTERS["fleet_fan_out"](states, 1) == {"b": "a"}
    assert FILTERS["fleet_fan_out"]({**states, "b": {"state": "absent", "tried": ["a"]}}, 2) == {"c": "a"}


def test_what_an_engine_lacks() -> None:
    there = {"docker.io": {"version": "26.1", "held": True}, "containerd": {"version": "1.6", "held": False}}
    assert FILTERS["fleet_missing"]({"docker.io": "26.1", "containerd": "1.7"}, there) == {"containerd": "1.7"}
    new_enough = FILTERS["fleet_new_enough"]
    assert new_enough(["26.1.5+dfsg1", "v2.26.1-4"], ["25.0", "2.24.4"])
    assert not new_enough(["26.1.5", "2.9.0"], ["25.0", "2.24.4"])
    assert not new_enough(["", "2.26.1"], ["25.0", "2.24.4"])


def test_units_that_differ_or_do_not_run() -> None:
    text = [{"key": "/u/a.timer", "value": "x\n"}]
    digest = hashlib.sha256(b"x\n").hexdigest()
    assert not FILTERS["fleet_differ"](text, {"/u/a.timer": digest})
    assert FILTERS["fleet_differ"](text, {"/u/a.timer": ""})
    units = {"s@a.service": {"enabled": True, "active": False}, "a.timer": {"enabled": True, "active": True}}
    assert FILTERS["fleet_enabled"](list(units), units)
    assert not FILTERS["fleet_enabled"](["a.timer"], {"a.timer": {"enabled": True, "active": False}})
    assert not FILTERS["fleet_enabled"](["b.service"], units)


def test_what_all_hosts_recorded() -> None:
    good = {"outcome": "unchanged"}
    hostvars = {"a": {"server_report": good}, "b": {"server_report": {"outcome": "proven"}}, "c": {}}
    assert FILTERS["fleet_all_reports"](hostvars, ["a", "b", "c"], ["a", "c"]) == {"a": good}
