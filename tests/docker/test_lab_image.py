"""The lab as a user runs it: from the compose file, healthy, proven, killed, hung, misconfigured, side by side."""

from __future__ import annotations

import json
import re
import shutil
import threading
import time
from pathlib import Path

import httpx
from lab_container import Lab
from machine import ROOT, bake, run, wait


def test_it_is_healthy_and_proven(lab: Lab, record_property) -> None:
    record_property("seconds_to_healthy", round(lab.seconds))
    code, document = lab.prove()
    assert (code, document["verdict"]) == (0, "FIRED")


def test_the_kernels_line_is_kept_apart_from_the_log(lab: Lab) -> None:
    kept = [json.loads(line) for line in lab.exec("cat", "/var/lib/fastfill/state/kernels.jsonl").splitlines()]
    assert "fmha_fwd_hd256_fp8_causal_group_gfx950" in kept[-1]["line"]
    assert abs(kept[-1]["time"] - time.time()) < 3600
    assert kept[-1]["line"] in lab.logs()


def test_health_does_not_disturb_a_busy_server(lab: Lab) -> None:
    """Counters that advanced are health enough: no request of its own joins the batches."""
    assert lab.answers()
    said = lab.exec("fastfill", "health")
    assert "tokens since the last look" in said
    assert "a completion succeeded" in lab.exec("fastfill", "health")


def test_pins_verify_names_what_the_lab_emulates(lab: Lab) -> None:
    done = run("docker", "exec", f"{lab.project}-server-1", "fastfill", "pins", "verify", "--json", check=False)
    fields = {field["name"]: field["ok"] for field in json.loads(done.stdout)["fields"]}
    assert done.returncode == 1
    assert fields["sglang.version"] and fields["patches.sha256"]
    assert not any(ok for name, ok in fields.items() if name.startswith("aiter.kernels"))


def test_a_killed_scheduler_is_restarted_and_its_client_hears_of_it(lab: Lab, record_property) -> None:
    heard: list[str] = []

    def ask() -> None:
        body = {"text": "a long answer", "sampling_params": {"max_new_tokens": 8000, "ignore_eos": True}}
        try:
            answer = httpx.post(f"{lab.url}/generate", json=body, timeout=60, trust_env=False)
            heard.append(f"HTTP {answer.status_code}")
        except httpx.HTTPError as error:
            heard.append(type(error).__name__)

    client = threading.Thread(target=ask)
    client.start()
    time.sleep(2)
    before = lab.restarts()
    lab.signal_scheduler("KILL")
    record_property("seconds_to_end", round(lab.wait_for_restart(before, 60), 1))
    client.join(30)
    assert heard and heard != ["HTTP 200"], heard
    record_property("seconds_to_answer", round(lab.wait_until_it_answers(), 1))


def test_a_stopped_scheduler_is_ended_and_restarted(lab: Lab, record_property) -> None:
    """SGLang's own watchdogs sleep with it: they are its threads."""
    before = lab.restarts()
    lab.signal_scheduler("STOP")
    record_property("seconds_to_end", round(lab.wait_for_restart(before, 120), 1))
    assert "has been stopped" in lab.logs()
    lab.wait_until_it_answers()
    wait("healthy again", lab.healthy, 120)


def test_a_kill_switch_outlives_the_container(lab: Lab) -> None:
    run(str(ROOT / ".venv/bin/fastfill"), "path", "off", "--url", lab.url, "--why", "a test")
    lab.compose("up", "--wait", "--no-build", "--force-recreate", "server")
    code, document = lab.prove()
    assert (code, document["verdict"]) == (1, "NOT_FIRED")
    assert "operator_off" in json.dumps(document["ranks"])
    run(str(ROOT / ".venv/bin/fastfill"), "path", "on", "--url", lab.url, "--why", "a test")


def test_two_side_by_side_are_proven_apart(lab: Lab) -> None:
    """The other one has the flag off: were they mixed up, one verdict would be wrong."""
    other = Lab("fastfill-test-two", LAB_PROFILE="off")
    try:
        other.up()
        code, document = other.prove()
        assert (code, document["verdict"]) == (1, "NOT_FIRED")
        assert "flag_off" in json.dumps(document["ranks"])
        code, document = lab.prove()
        assert (code, document["verdict"]) == (0, "FIRED")
    finally:
        other.down()


def test_a_configuration_error_does_not_loop(lab_image: str) -> None:
    wrong = Lab("fastfill-test-wrong", LAB_PROFILE="no-such-profile")
    try:
        assert wrong.compose("up", "--detach", "--no-build").returncode == 0
        wait("given up", lambda: wrong.inspect("{{.State.Status}}") == "exited", 90)
        assert wrong.inspect("{{.State.ExitCode}}") == "2"
        assert wrong.restarts() <= 5
        assert "there is no profile" in wrong.logs()
        time.sleep(3)
        assert wrong.inspect("{{.State.Status}}") == "exited"
    finally:
        wrong.down()


def test_the_image_is_small_and_holds_nothing_of_this_machine(lab_image: str, record_property) -> None:
    size = int(run("docker", "image", "inspect", "--format", "{{.Size}}", lab_image).stdout)
    record_property("image_bytes", size)
    assert size < 2.6e9
    seen = (
        run("docker", "image", "inspect", lab_image).stdout + run("docker", "history", "--no-trunc", lab_image).stdout
    )
    assert str(ROOT) not in seen
    assert "pip.conf" not in run("docker", "run", "--rm", "--entrypoint", "ls", lab_image, "/etc").stdout
    assert run("docker", "run", "--rm", "--entrypoint", "id", lab_image, "-u").stdout.strip() == "1000"


def test_an_edited_patch_rebuilds_only_what_comes_after(
    lab_image: str, source: Path, tmp_path: Path, record_property
) -> None:
    context = Path(shutil.copytree(source, tmp_path / "checkout"))
    patch = context / "patches/sglang-0.5.16/fp8-hd256-prefill.patch"
    patch.write_text(patch.read_text().replace("Description: ", "Description: Edited. ", 1))
    begun = time.monotonic()
    done = bake("lab", tmp_path, "--set=lab.tags=fastfill-lab:edited", context=context)
    record_property("rebuild_seconds", round(time.monotonic() - begun))
    steps = cached_steps(done.stderr)
    assert steps["environment"] and all(steps["environment"])
    assert steps["models"] and all(steps["models"])
    assert not all(steps["lab"])


def cached_steps(progress: str) -> dict[str, list[bool]]:
    """Of bake's plain progress: stage to whether each of its steps came from the cache."""
    stages: dict[str, str] = {}
    found: dict[str, list[bool]] = {}
    for line in progress.splitlines():
        # FROM itself is no step that could be cached.
        step = re.match(r"#(\d+) \[(?:\S+ )?(\S+) +\d+/\d+\] (?!FROM )", line)
        if step:
            stages[step[1]] = step[2]
        state = re.match(r"#(\d+) (CACHED|DONE)", line)
        if state and state[1] in stages:
            found.setdefault(stages.pop(state[1]), []).append(state[2] == "CACHED")
    return found
