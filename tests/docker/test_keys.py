"""Two planted keys are looked for everywhere that a server leaves traces."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import httpx
import pytest
from lab_container import Lab
from machine import PLANTED, run

KEY, ADMIN = "sk-planted-ordinary-7f3a", "sk-planted-admin-91bc"


@pytest.fixture(scope="module")
def locked(lab_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab that asks for a key."""
    folder = tmp_path_factory.mktemp("keys")
    files = {}
    for name, key in (("FASTFILL_API_KEY_FILE", KEY), ("FASTFILL_ADMIN_API_KEY_FILE", ADMIN)):
        file = folder / name
        file.write_text(key + "\n")
        files[name] = str(file)
    server = Lab("fastfill-test-keys", key=KEY, **files)
    try:
        server.up()
        yield server
    finally:
        server.down()


def test_the_key_is_asked_for_and_taken(locked: Lab) -> None:
    assert locked.answers()
    body = {"text": "hello", "sampling_params": {"max_new_tokens": 1}}
    assert httpx.post(f"{locked.url}/generate", json=body, trust_env=False).status_code == 401
    assert httpx.get(f"{locked.url}/metrics/", trust_env=False).status_code == 200, "the README says so: bind the port"


def traces(locked: Lab) -> Iterator[tuple[str, str]]:
    """Where it was looked, and what was there."""
    yield "docker inspect", locked.inspect("{{json .}}")
    yield "log", locked.logs()
    yield "compose config", locked.compose("config").stdout
    yield "image", run("docker", "image", "inspect", "fastfill-lab:latest").stdout
    yield "image history", run("docker", "history", "--no-trunc", "fastfill-lab:latest").stdout
    yield (
        "command lines and environments",
        locked.exec("sh", "-c", "for p in /proc/[0-9]*; do cat $p/cmdline $p/environ 2>/dev/null | tr '\\0' ' '; done"),
    )
    for page in ("/server_info", "/get_server_info", "/fastfill/status", "/fastfill/passes", "/metrics/"):
        reply = httpx.get(locked.url + page, headers=locked.headers, timeout=30, trust_env=False)
        assert reply.status_code == 200, page
        yield page, reply.text
    code, document = locked.prove()
    assert (code, document["verdict"]) == (0, "FIRED")
    yield "evidence of prove", json.dumps(document)
    yield (
        "state",
        locked.exec(
            "sh", "-c", "find /var/lib/fastfill /tmp -type f ! -name keys.yaml -exec cat {} + 2>/dev/null | tr -d '\\0'"
        ),
    )


def test_it_is_found_nowhere(locked: Lab) -> None:
    found = [where for where, text in traces(locked) for key in (KEY, ADMIN) if key in text]
    assert found == []
    assert "(redacted)" in locked.logs()


def test_the_file_that_carries_them_is_the_servers_alone(locked: Lab) -> None:
    assert locked.exec("stat", "-c", "%a %u", "/var/lib/fastfill/state/keys.yaml").strip() == "600 1000"


def held(image: str, words: list[bytes]) -> set[bytes]:
    """Which of some words stand anywhere in an image: every layer, as ``docker save`` writes it, and its metadata."""
    found: set[bytes] = set()
    overlap = max(map(len, words)) - 1
    with subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE) as saving:
        assert saving.stdout is not None
        before = b""
        while piece := saving.stdout.read(1 << 24):
            window = before + piece
            found |= {word for word in words if word in window}
            before = window[-overlap:]
    assert saving.returncode == 0
    return found


def test_no_layer_holds_a_secret(locked: Lab, lab_image: str) -> None:
    known = b"Which prompts take the fast path, and why the others do not: this line is in no image."
    there = b"SGLANG_AITER_FMHA_FP8_ASM"
    words = [KEY.encode(), ADMIN.encode(), PLANTED.encode(), known, there]
    assert held(lab_image, words) == {there}, "the layers are readable, and hold no secret"
