"""Compose files and bake's file as docker's own command line sees them; no engine is needed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import compose_schema
import pytest
from machine import ROOT, UNIT

sys.path.insert(0, str(UNIT))

import host_tree
from cli_run import fastfill

from fastfill.pinning import render
from fastfill.pinning import stack as stacks

pytestmark = pytest.mark.usefixtures("docker_cli")

SETTINGS = {
    "FASTFILL_MODEL": "/models/x",
    "FASTFILL_TP": "4",
    "FASTFILL_GPUS": "0,1,2,3",
    "FASTFILL_VIDEO_GID": "44",
    "FASTFILL_RENDER_GID": "109",
    "FASTFILL_MODELS": "/srv/models",
}


def docker(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("FASTFILL_", "LAB_"))}
    return subprocess.run(["docker", *words], capture_output=True, text=True, cwd=ROOT, env={**clean, **env})


def config(*files: str, env_file: str = "/dev/null", **env: str) -> dict[str, Any]:
    """What Compose makes of some files; without the checkout's own .env, what a test gives is all there is."""
    words = [word for file in files for word in ("-f", file)]
    done = docker("compose", "--env-file", env_file, *words, "--profile", "prove", "config", "--format", "json", **env)
    assert done.returncode == 0, done.stderr
    assert "warn" not in done.stderr.lower(), done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def test_the_server_has_what_amd_asks_and_no_more() -> None:
    server = config("compose.yaml", **SETTINGS)["services"]["server"]
    assert "privileged" not in server
    assert server["cap_add"] == ["SYS_PTRACE"]
    assert [device["source"] for device in server["devices"]] == ["/dev/kfd", "/dev/dri"]
    assert server["group_add"] == ["44", "0109"]
    assert (server["ipc"], int(server["shm_size"])) == ("host", 32 << 30)
    assert server["ulimits"]["memlock"] == -1
    assert server["ports"][0]["host_ip"] == "127.0.0.1"
    assert server["restart"] == "on-failure:5"
    assert server["healthcheck"]["test"][:3] == ["CMD", "fastfill", "health"]
    models = next(volume for volume in server["volumes"] if volume["target"] == "/models")
    assert models["read_only"] is True
    assert (models["type"], models["source"]) == ("bind", "/srv/models")
    assert not models["bind"].get("create_host_path")
    assert server["image"] == stacks.load().image
    assert server["build"]["args"] == render.arguments(stacks.load())


def test_one_group_may_own_both_device_files() -> None:
    same = SETTINGS | {"FASTFILL_VIDEO_GID": "109"}
    assert config("compose.yaml", **same)["services"]["server"]["group_add"] == ["109", "0109"]


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
    assert "profiles" not in server


def test_bake_asks_for_what_the_stack_says() -> None:
    done = docker("buildx", "bake", "-f", "docker/docker-bake.hcl", "--print", "default", SOURCE_REVISION="abc")
    assert done.returncode == 0, done.stderr
    target = json.loads(done.stdout)["target"]["gpu"]
    assert target["args"] == {**render.arguments(stacks.load()), "SOURCE_REVISION": "abc"}
    assert target["tags"] == [stacks.load().image]


def test_bake_and_compose_build_the_same() -> None:
    """Of either entry: the Dockerfile, the context, the arguments and the name of what comes out."""
    done = docker("buildx", "bake", "-f", "docker/docker-bake.hcl", "--print", "gpu", "lab")
    assert done.returncode == 0, done.stderr
    for target, file in (("gpu", "compose.yaml"), ("lab", "compose.lab.yaml")):
        baked = json.loads(done.stdout)["target"][target]
        server = config(file, **SETTINGS)["services"]["server"]
        assert server["build"]["dockerfile"] == baked["dockerfile"]
        assert Path(server["build"]["context"]) == (ROOT / baked["context"]).resolve()
        assert [server["image"]] == baked["tags"]
        given = {name: value for name, value in baked["args"].items() if name != "SOURCE_REVISION"}
        assert server["build"]["args"] == given


def init(place: Path, *words: str) -> Path:
    """What ``fastfill init`` writes for a recorded host of eight GPUs, beside this checkout's own compose files."""
    place.mkdir()
    host = host_tree.good(place / "host")
    ran = fastfill("init", "--offline", "--root", str(host), "--into", str(place), *words)
    assert ran.code == 0, ran.err
    for name in ("compose.yaml", "docker"):
        (place / name).symlink_to(ROOT / name)
    return place


def test_compose_takes_what_init_writes(tmp_path: Path) -> None:
    place = init(tmp_path / "out")
    server = config(str(place / "compose.yaml"), env_file=str(place / ".env"))["services"]["server"]
    assert server["environment"]["HIP_VISIBLE_DEVICES"] == "0,1,2,3"
    assert "0993" in server["group_add"]
    assert server["command"][:4] == ["--profile", "long-context", "--model", "/models/Qwen3.5-397B-A17B-MXFP4"]
    assert "privileged" not in server


@pytest.mark.parametrize(("instances", "tp"), [(2, 4), (4, 2)])
def test_several_servers_share_no_gpu_and_no_state(tmp_path: Path, instances: int, tp: int) -> None:
    place = init(tmp_path / "out", "--instances", str(instances))
    services = config(str(place / "compose.instances.yaml"), env_file=str(place / ".env"))["services"]
    servers = [services[f"server-{number}"] for number in range(instances)]
    devices = [device["source"] for server in servers for device in server["devices"]]
    render_nodes = [device for device in devices if "renderD" in device]
    assert len(render_nodes) == len(set(render_nodes)) == instances * tp
    assert devices.count("/dev/kfd") == instances
    assert "/dev/dri" not in devices
    assert len({server["ports"][0]["published"] for server in servers}) == instances
    volumes = [v["source"] for server in servers for v in server["volumes"] if v["type"] == "volume"]
    assert len(volumes) == len(set(volumes)) == 2 * instances
    for number, server in enumerate(servers):
        assert server["command"][server["command"].index("--tp") + 1] == str(tp)
        assert server["environment"]["HIP_VISIBLE_DEVICES"] == ",".join(map(str, range(tp)))
        prove = services[f"prove-{number}"]
        assert prove["entrypoint"][-1] == f"http://server-{number}:30000"
        assert list(prove["depends_on"]) == [f"server-{number}"]
        assert [(v["source"], v["target"]) for v in prove["volumes"]] == [
            (f"state-{number}", "/var/lib/fastfill/state")
        ], "where aiter's line on the kernel is kept"


def test_what_init_writes_keeps_to_the_schema(tmp_path: Path) -> None:
    file = init(tmp_path / "out", "--instances", "2") / "compose.instances.yaml"
    assert compose_schema.check(file) == ""
    file.write_text(file.read_text().replace('"environment"', '"enviroment"', 1))
    assert "enviroment" in compose_schema.check(file), "the schema tells a wrong file"


def test_compose_names_each_missing_value_and_what_to_set() -> None:
    argv = ("compose", "--env-file", "/dev/null", "-f", "compose.yaml", "config", "-q")
    given: dict[str, str] = {}
    for _ in SETTINGS:
        done = docker(*argv, **given)
        assert done.returncode != 0
        found = re.search(r"required variable (\w+) is missing a value: (set it in \.env to .*)", done.stderr)
        assert found and "fastfill init" in found[2], done.stderr
        given[found[1]] = SETTINGS[found[1]]
    assert set(given) == set(SETTINGS)
    assert docker(*argv, **given).returncode == 0
