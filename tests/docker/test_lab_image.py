"""The lab as a user runs it: from the compose file, healthy, proven, killed, hung, misconfigured, side by side."""

from __future__ import annotations

import json
import re
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import pytest
from lab_container import Lab
from machine import ROOT, Measured, bake, run, wait

STATE = "/var/lib/fastfill/state"
FASTFILL = str(Path(sys.executable).parent / "fastfill")


def test_it_is_healthy_and_proven(lab: Lab) -> None:
    code, document = lab.prove()
    assert (code, document["verdict"]) == (0, "FIRED")


def test_a_proof_from_outside_reads_the_containers_log(lab: Lab, tmp_path: Path) -> None:
    """``--container``: both witnesses from the host, the evidence sealed and judged again."""
    words = ["--witness", "counters,log", "--container", f"{lab.project}-server-1", "--load", "0", "--json"]
    done = run(FASTFILL, "prove", "--url", lab.url, *words, "--evidence", str(tmp_path / "e"), check=False)
    document = json.loads(done.stdout)
    said = {one["witness"]: one["says"] for one in document["witnesses"]}
    assert (done.returncode, document["verdict"]) == (0, "FIRED"), document
    assert (said["counters"], said["log"]) == ("seen", "seen"), document["witnesses"]
    again = run(FASTFILL, "prove", "--replay", str(tmp_path / "e"), "--json", check=False)
    assert json.loads(again.stdout)["verdict"] == "FIRED"


def test_the_kernels_line_is_kept_apart_from_the_log(lab: Lab) -> None:
    kept = [json.loads(line) for line in lab.exec("cat", f"{STATE}/kernels.jsonl").splitlines()]
    assert "fmha_fwd_hd256_fp8_causal_group_gfx950" in kept[-1]["line"]
    assert abs(kept[-1]["time"] - time.time()) < 3600
    assert kept[-1]["line"] in lab.logs()


def test_health_does_not_disturb_a_busy_server(lab: Lab) -> None:
    """Counters that advanced are health enough: no request of its own joins the batches.

    The container's own health check looks at any time, and what it saw is not seen again: so the server is kept busy
    during the look, and on a quiet server one of two looks must ask for a completion.
    """
    with busy(lab):
        said = lab.exec("fastfill", "health")
    assert "tokens since the last look" in said
    lab.exec("fastfill", "health")
    assert any("a completion succeeded" in lab.exec("fastfill", "health") for _ in range(2))


@contextmanager
def busy(lab: Lab) -> Iterator[None]:
    """One short request after the other; two are answered before it begins."""
    answered, done = threading.Semaphore(0), threading.Event()

    def ask() -> None:
        while not done.is_set():
            if lab.answers():
                answered.release()

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        assert all(answered.acquire(timeout=30) for _ in range(2))
        yield
    finally:
        done.set()
        asking.join()


def test_pins_verify_names_what_the_lab_emulates(lab: Lab) -> None:
    done = run("docker", "exec", f"{lab.project}-server-1", "fastfill", "pins", "verify", "--json", check=False)
    fields = {field["name"]: field["ok"] for field in json.loads(done.stdout)["fields"]}
    assert done.returncode == 1
    assert fields["sglang.version"] and fields["patches.sha256"]
    assert not any(ok for name, ok in fields.items() if name.startswith("aiter.kernels"))


def test_two_side_by_side_are_proven_apart(lab: Lab, locked: Lab) -> None:
    """The other one has the flag off: were they mixed up, one verdict would be wrong."""
    code, document = locked.prove()
    assert (code, document["verdict"]) == (1, "NOT_FIRED")
    assert "flag_off" in json.dumps(document["ranks"])
    code, document = lab.prove()
    assert (code, document["verdict"]) == (0, "FIRED")


def test_pins_verify_compares_a_server_with_its_profile(lab: Lab, locked: Lab) -> None:
    """The second one serves another profile than it is said to, and asks for a key."""

    def fields(server: Lab, *words: str) -> dict[str, dict]:
        argv = ("pins", "verify", "--url", server.url, "--profile", "long-context", "--json", *words)
        done = run(FASTFILL, *argv, check=False)
        assert done.returncode in (0, 1), done.stderr
        return {field["name"]: field for field in json.loads(done.stdout)["fields"]}

    found = fields(lab)
    assert found["sglang.version"]["ok"] and found["patched"]["ok"]
    assert found["flag.kv-cache-dtype"]["live"] == "fp8_e4m3" and found["flag.kv-cache-dtype"]["ok"]
    assert found["flag.chunked-prefill-size"]["ok"]
    assert found["env.SGLANG_AITER_FMHA_FP8_ASM"]["ok"]
    flag = fields(locked, "--api-key-file", locked.settings["FASTFILL_API_KEY_FILE"])["env.SGLANG_AITER_FMHA_FP8_ASM"]
    assert (flag["intended"], flag["live"], flag["ok"]) == ("True", "False", False)


class Hung(NamedTuple):
    """A server whose scheduler is stopped, and what was seen before."""

    lab: Lab
    since: float
    restarts: int
    client: Future[str]


@pytest.fixture(scope="module")
def hung(locked: Lab) -> Hung:
    """The second lab's scheduler, stopped (SIGSTOP); until that is noticed the first one is tested."""
    restarts, client = locked.restarts(), locked.client(8000)
    locked.signal_scheduler("STOP")
    return Hung(locked, time.time(), restarts, client)


def path(lab: Lab, state: str) -> None:
    run(FASTFILL, "path", state, "--url", lab.url, "--why", "a test")


def test_a_killed_scheduler_is_restarted_with_the_kill_switch_as_it_was(
    lab: Lab, hung: Hung, measured: Measured
) -> None:
    path(lab, "off")
    before, client = lab.restarts(), lab.client(8000)
    lab.signal_scheduler("KILL")
    measured("a killed scheduler's server ended and started", lab.wait_for_restart(before, 60), 15)
    assert client.result(60) != "complete"
    measured("until it answered again", lab.wait_until_it_answers(), 90, judge=False)
    code, document = lab.prove()
    assert (code, document["verdict"]) == (1, "NOT_FIRED")
    assert "operator_off" in json.dumps(document["ranks"])
    another = lab.compose("run", "--rm", "-T", "--no-deps", "--entrypoint", "cat", "server", f"{STATE}/path.json")
    assert json.loads(another.stdout)["path"] == "off", "another container of the same service finds it too"
    path(lab, "on")


def test_a_configuration_error_does_not_loop(lab_image: str) -> None:
    wrong = Lab("fastfill-test-wrong", LAB_PROFILE="no-such-profile")
    try:
        wrong.start()
        wait("given up", lambda: wrong.inspect("{{.State.Status}}") == "exited", 90)
        assert wrong.inspect("{{.State.ExitCode}}") == "2"
        assert wrong.restarts() <= 5
        assert "there is no profile" in wrong.logs()
        time.sleep(3)
        assert wrong.inspect("{{.State.Status}}") == "exited"
    finally:
        wrong.down()


def test_a_stopped_scheduler_is_ended_and_restarted(hung: Hung, measured: Measured) -> None:
    """SGLang's own watchdogs sleep with it: they are its threads."""
    hung.lab.wait_for_restart(hung.restarts, 90)
    assert hung.client.result(60) != "complete", "its client is told, and does not wait for ever"
    started = datetime.fromisoformat(hung.lab.inspect("{{.State.StartedAt}}")[:19] + "+00:00").timestamp()
    measured("a stopped scheduler's server ended and started", started - hung.since, 60)
    assert "has been stopped" in hung.lab.logs()
    hung.lab.wait_until_it_answers()
    wait("healthy again", hung.lab.healthy, 120)


def test_who_is_being_answered_is_answered_to_the_end_when_the_server_is_stopped(locked: Lab) -> None:
    client = locked.client(200)
    assert not client.done()
    locked.compose("stop", "server")
    assert client.result(60) == "complete"
    assert locked.inspect("{{.State.Status}}") == "exited"


def test_the_image_is_small_and_holds_nothing_of_this_machine(lab_image: str) -> None:
    size = int(run("docker", "image", "inspect", "--format", "{{.Size}}", lab_image).stdout)
    assert size < 2.6e9
    # Not the whole of it: where the engine keeps the layers is no part of the image.
    seen = run("docker", "image", "inspect", "--format", "{{json .Config}}", lab_image).stdout
    seen += run("docker", "history", "--no-trunc", lab_image).stdout
    assert str(ROOT) not in seen
    assert "pip.conf" not in run("docker", "run", "--rm", "--entrypoint", "ls", lab_image, "/etc").stdout
    assert run("docker", "run", "--rm", "--entrypoint", "id", lab_image, "-u").stdout.strip() == "1000"


def test_bake_builds_what_compose_has_built(lab_image: str, source: Path, scratch: Path) -> None:
    steps = cached_steps(bake("lab", scratch, context=source).stderr)
    assert {"environment", "wheel", "models", "lab"} <= set(steps)
    assert all(cached for stage in steps.values() for cached in stage), steps


def test_an_edited_patch_rebuilds_only_what_comes_after(
    lab_image: str, source: Path, tmp_path: Path, measured: Measured
) -> None:
    context = Path(shutil.copytree(source, tmp_path / "checkout"))
    patch = context / "patches/sglang-0.5.16/fp8-hd256-prefill.patch"
    patch.write_text(patch.read_text().replace("Description: ", "Description: Edited. ", 1))
    begun = time.monotonic()
    done = bake("lab", tmp_path, "--set=lab.tags=fastfill-lab:edited", context=context)
    measured("rebuilt after an edited patch", time.monotonic() - begun, 60, judge=False)
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
