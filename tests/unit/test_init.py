"""`fastfill init`: from recorded hosts to .env and, for several servers, a compose file of their own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import host_tree
import pytest
from cli_run import Ran, fastfill

ROOT = Path(__file__).parents[2]


@pytest.fixture
def host(tmp_path: Path) -> Path:
    return host_tree.good(tmp_path / "host")


def init(host: Path, place: Path, *words: str) -> Ran:
    place.mkdir(exist_ok=True)
    return fastfill("init", "--offline", "--root", str(host), "--into", str(place), *words)


def env(place: Path) -> dict[str, str]:
    lines = (place / ".env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


def compose(place: Path, *files: str) -> dict:
    """What Compose makes of the checkout's files with this .env; it needs no engine."""
    if shutil.which("docker") is None:
        pytest.skip("docker is not installed")
    for name in ("compose.yaml", "docker"):
        if not (place / name).exists():
            (place / name).symlink_to(ROOT / name)
    words = [word for file in files for word in ("-f", str(place / file))]
    argv = ["docker", "compose", "--env-file", str(place / ".env"), *words, "config", "--format", "json"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("FASTFILL_")}
    done = subprocess.run(argv, capture_output=True, text=True, env=clean)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_one_server_gets_what_the_host_has(host: Path, tmp_path: Path) -> None:
    ran = init(host, tmp_path / "out")
    assert ran.code == 0, ran.err
    values = env(tmp_path / "out")
    assert values["FASTFILL_GPUS"] == "0,1,2,3"
    assert (values["FASTFILL_TP"], values["FASTFILL_RENDER_GID"]) == ("4", "993")
    for name in values:
        assert re.search(rf"^{name}=.*\n    \S", ran.out, re.MULTILINE), f"{name} is not explained"


def test_compose_takes_it(host: Path, tmp_path: Path) -> None:
    place = tmp_path / "out"
    init(host, place)
    server = compose(place, "compose.yaml")["services"]["server"]
    assert server["environment"]["HIP_VISIBLE_DEVICES"] == "0,1,2,3"
    assert "993" in server["group_add"]
    assert server["command"][:4] == ["--profile", "long-context", "--model", "/models/Qwen3.5-397B-A17B-MXFP4"]
    assert "privileged" not in server


@pytest.mark.parametrize(("instances", "tp"), [(2, 4), (4, 2)])
def test_several_servers_share_no_gpu_and_no_state(host: Path, tmp_path: Path, instances: int, tp: int) -> None:
    place = tmp_path / "out"
    assert init(host, place, "--instances", str(instances)).code == 0
    services = compose(place, "compose.instances.yaml")["services"]
    servers = [services[f"server-{number}"] for number in range(instances)]
    devices = [device["source"] for server in servers for device in server["devices"]]
    render = [device for device in devices if "renderD" in device]
    assert len(render) == len(set(render)) == instances * tp
    assert devices.count("/dev/kfd") == instances
    assert "/dev/dri" not in devices
    assert len({server["ports"][0]["published"] for server in servers}) == instances
    volumes = [v["source"] for server in servers for v in server["volumes"] if v["type"] == "volume"]
    assert len(volumes) == len(set(volumes)) == 2 * instances
    for server in servers:
        assert server["command"][server["command"].index("--tp") + 1] == str(tp)
        assert server["environment"]["HIP_VISIBLE_DEVICES"] == ",".join(map(str, range(tp)))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--gpus", "0,1", "--gpus", "1,2"], "GPU 1 is given to servers 0 and 1"),
        (["--gpus", "0,9"], "there is no gfx950 GPU 9"),
        (["--instances", "3", "--tp", "4"], "need 12; this host has 8"),
        (["--gpus", "a"], "write 0,1,2,3"),
        (["--instances", "3", "--gpus", "0", "--gpus", "1"], "--gpus is given 2 times"),
    ],
)
def test_what_cannot_be_is_refused(host: Path, tmp_path: Path, words: list[str], says: str) -> None:
    ran = init(host, tmp_path / "out", *words)
    assert ran.code == 2
    assert says in ran.err
    assert not (tmp_path / "out/.env").exists()


def test_what_somebody_set_stays(host: Path, tmp_path: Path) -> None:
    place = tmp_path / "out"
    place.mkdir()
    (place / ".env").write_text("# mine\nFASTFILL_PORT=8080\nOTHER=1\n")
    ran = init(host, place)
    assert "(kept yours)" in ran.out
    assert (env(place)["FASTFILL_PORT"], env(place)["OTHER"]) == ("8080", "1")
    text = (place / ".env").read_text()
    init(host, place)
    assert (place / ".env").read_text() == text


def test_without_a_gpu_it_says_where_to_go(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    ran = init(tmp_path / "empty", tmp_path / "out")
    assert ran.code == 4
    assert "compose.lab.yaml" in ran.err


def test_compose_names_each_missing_value(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("")
    if shutil.which("docker") is None:
        pytest.skip("docker is not installed")
    (tmp_path / "compose.yaml").symlink_to(ROOT / "compose.yaml")
    (tmp_path / "docker").symlink_to(ROOT / "docker")
    given: list[str] = []
    for _ in range(6):
        (tmp_path / ".env").write_text("".join(f"{name}=1\n" for name in given))
        argv = [
            "docker",
            "compose",
            "--env-file",
            str(tmp_path / ".env"),
            "-f",
            str(tmp_path / "compose.yaml"),
            "config",
        ]
        clean = {name: value for name, value in os.environ.items() if not name.startswith("FASTFILL_")}
        done = subprocess.run([*argv, "-q"], capture_output=True, text=True, env=clean)
        assert done.returncode != 0
        found = re.search(r"required variable (\w+) is missing a value: (.*)", done.stderr)
        assert found and "fastfill init" in found[2], done.stderr
        given.append(found[1])
    assert sorted(given) == sorted(
        f"FASTFILL_{name}" for name in ("MODEL", "TP", "GPUS", "VIDEO_GID", "RENDER_GID", "MODELS")
    )
