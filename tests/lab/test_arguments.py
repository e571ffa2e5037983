"""The argument names that flags are checked against are those of the releases' own parsers, and are judged as these do.

Here 0.5.16 and 0.5.23, which every test run installs, and whatever other release of the lab is installed already.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fastfill.lab import cache, stacks
from fastfill.serving import arguments

ROOT = Path(__file__).resolve().parents[2]
WORDS = (
    "--page-size=64", "--page-siz=64", "--page_size=64", "--pp=2", "--tensor-p=2", "--kv-cache-dtipe=auto",
    "--nonsense=1", "--tp=2", "--enable-prefill-cp", "--chunked-prefill-size=512", "--cuda-graph-max-bs=8",
)  # fmt: skip
TRIED = """
import argparse, json, sys
from sglang.srt.server_args import ServerArgs

class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise ValueError(message)

def takes(word):
    parser = Parser()
    ServerArgs.add_cli_args(parser)
    try:
        parser.parse_args(["--model-path", "x", word])
    except ValueError:
        return False
    return True

print(json.dumps({word: takes(word) for word in sys.argv[1:]}))
"""


def installed(release: str) -> bool:
    return (cache.root() / "environments" / stacks.find(f"sglang-{release}").environment_name()).is_dir()


def lab(release: str, *words: str) -> str:
    stack = f"sglang-{release}" + (stacks.UNPATCHED if stacks.has_series(release) else "")
    argv = [sys.executable, "-m", "fastfill", "lab", "python", "--stack", stack, "--", *words]
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=600, cwd=ROOT).stdout


@pytest.mark.parametrize("release", stacks.RELEASES)
def test_the_names_are_those_of_the_real_parser(release: str) -> None:
    if release not in ("0.5.16", "0.5.23") and not installed(release):
        pytest.skip(f"SGLang {release} is not installed: make sweep installs it")
    committed = (ROOT / "launch" / "fastfill" / "serving" / "arguments" / f"{release}.txt").read_text()
    assert lab(release, "bench/sglang_arguments.py") == committed


@pytest.mark.parametrize("release", ["0.5.16", "0.5.23"])
def test_the_real_parser_takes_and_refuses_the_same(release: str) -> None:
    real = json.loads(lab(release, "-c", TRIED, *WORDS).splitlines()[-1])
    assert {word: not arguments.misspelt([word], release) for word in WORDS} == real
    assert set(real.values()) == {True, False}
