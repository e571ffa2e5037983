"""Two planted keys are looked for everywhere that a server leaves traces."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
from lab_container import Lab
from machine import ADMIN, KEY, KNOWN, SECRETS, held, run


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
    assert (code, document["verdict"]) == (1, "NOT_FIRED")
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


def test_no_layer_holds_a_secret(lab_image: str) -> None:
    assert held(lab_image, [*SECRETS, *KNOWN]) == {KNOWN[0]}, "the layers are readable, and hold no secret"
