"""Dockerfiles, compose files and shell scripts, as their own tools see them; no engine is needed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fastfill.pinning import render
from fastfill.pinning import stack as stacks

ROOT = Path(__file__).parents[2]
TOOLS = Path(sys.executable).parent
SETTINGS = {
    "FASTFILL_MODEL": "/models/x",
    "FASTFILL_TP": "4",
    "FASTFILL_GPUS": "0,1,2,3",
    "FASTFILL_VIDEO_GID": "44",
    "FASTFILL_RENDER_GID": "109",
    "FASTFILL_MODELS": "/srv/models",
}


def tool(*argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("FASTFILL_", "LAB_"))}
    return subprocess.run(argv, capture_output=True, text=True, cwd=ROOT, env={**clean, **env})


def config(*files: str, **env: str) -> dict[str, Any]:
    if shutil.which("docker") is None:
        pytest.skip("docker is not installed")
    words = [word for file in files for word in ("-f", file)]
    done = tool("docker", "compose", *words, "--profile", "prove", "config", "--format", "json", **env)
    assert done.returncode == 0, done.stderr
    assert "warn" not in done.stderr.lower(), done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


@pytest.mark.parametrize("file", ["docker/Dockerfile", "docker/lab.Dockerfile", "tests/docker/vendor/Dockerfile"])
def test_hadolint(file: str) -> None:
    done = tool(str(TOOLS / "hadolint"), "--no-color", file)
    assert done.returncode == 0, done.stdout


def test_shellcheck() -> None:
    scripts = [str(path) for folder in ("docker", "tests/docker") for path in (ROOT / folder).rglob("*.sh")]
    done = tool(str(TOOLS / "shellcheck"), *scripts)
    assert len(scripts) >= 5 and done.returncode == 0, done.stdout


def test_the_server_has_what_amd_asks_and_no_more() -> None:
    server = config("compose.yaml", **SETTINGS)["services"]["server"]
    assert "privileged" not in server
    assert server["cap_add"] == ["SYS_PTRACE"]
    assert [device["source"] for device in server["devices"]] == ["/dev/kfd", "/dev/dri"]
    assert server["group_add"] == ["44", "109"]
    assert (server["ipc"], int(server["shm_size"])) == ("host", 32 << 30)
    assert server["ulimits"]["memlock"] == -1
    assert server["ports"][0]["host_ip"] == "127.0.0.1"
    assert server["restart"] == "on-failure:5"
    assert server["healthcheck"]["test"][:3] == ["CMD", "fastfill", "health"]
    models = next(volume for volume in server["volumes"] if volume["target"] == "/models")
    assert models["read_only"] is True
    assert server["image"] == stacks.load().image
    assert server["build"]["args"] == render.arguments(stacks.load())


def test_the_strict_override_takes_rights_away() -> None:
    server = config("compose.yaml", "docker/compose.strict.yaml", **SETTINGS)["services"]["server"]
    assert "cap_add" not in server or not server["cap_add"]
    assert server["cap_drop"] == ["ALL"]
    assert server["security_opt"] == ["no-new-privileges:true"]


def test_the_lab_needs_no_setting_and_no_right() -> None:
    document = config("compose.lab.yaml")
    server = document["services"]["server"]
    assert server["cap_drop"] == ["ALL"]
    assert "devices" not in server
    assert document["services"]["prove"]["profiles"] == ["prove"]
    assert "proof" not in server.get("profiles", [])


def test_bake_asks_for_what_the_stack_says() -> None:
    if shutil.which("docker") is None:
        pytest.skip("docker is not installed")
    done = tool("docker", "buildx", "bake", "-f", "docker/docker-bake.hcl", "--print", "default", SOURCE_REVISION="abc")
    assert done.returncode == 0, done.stderr
    target = json.loads(done.stdout)["target"]["gpu"]
    assert target["args"] == {**render.arguments(stacks.load()), "SOURCE_REVISION": "abc"}
    assert target["tags"] == [stacks.load().image]


def test_every_argument_of_the_dockerfile_comes_from_the_stack() -> None:
    text = (ROOT / "docker/Dockerfile").read_text()
    taken = {word.partition("=")[0] for line in re.findall(r"^ARG (.*)$", text, re.MULTILINE) for word in line.split()}
    assert taken == set(render.arguments(stacks.load())) | {"SOURCE_REVISION"}
