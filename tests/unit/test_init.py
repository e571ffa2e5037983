"""`fastfill init`: from recorded hosts to .env and, for several servers, a compose file of their own."""

from __future__ import annotations

import re
from pathlib import Path

import host_tree
import pytest
from cli_run import Ran, fastfill


@pytest.fixture
def host(tmp_path: Path) -> Path:
    return host_tree.good(tmp_path / "host")


def init(host: Path, place: Path, *words: str) -> Ran:
    place.mkdir(exist_ok=True)
    return fastfill("init", "--offline", "--root", str(host), "--into", str(place), *words)


def env(place: Path) -> dict[str, str]:
    lines = (place / ".env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


def test_one_server_gets_what_the_host_has(host: Path, tmp_path: Path) -> None:
    ran = init(host, tmp_path / "out")
    assert ran.code == 0, ran.err
    values = env(tmp_path / "out")
    assert values["FASTFILL_GPUS"] == "0,1,2,3"
    assert (values["FASTFILL_TP"], values["FASTFILL_RENDER_GID"]) == ("4", "993")
    for name in values:
        assert re.search(rf"^{name}=.*\n    \S", ran.out, re.MULTILINE), f"{name} is not explained"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--gpus", "0,1", "--gpus", "1,2"], "GPU 1 is given to servers 0 and 1"),
        (["--gpus", "0,9"], "there is no gfx950 GPU 9"),
        (["--instances", "3", "--tp", "4"], "need 12; this host has 8"),
        (["--gpus", "a"], "write 0,1,2,3"),
        (["--gpus", "0,1", "--tp", "4"], "--gpus says how many GPUs each server has"),
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
