"""What the Dockerfiles take is what the stack gives; tests/docker asks docker's own tools, `make lint` the linters."""

from __future__ import annotations

import re
from pathlib import Path

from fastfill.pinning import render
from fastfill.pinning import stack as stacks

ROOT = Path(__file__).parents[2]


def test_every_argument_of_the_dockerfile_comes_from_the_stack() -> None:
    text = (ROOT / "docker/Dockerfile").read_text()
    taken = {word.partition("=")[0] for line in re.findall(r"^ARG (.*)$", text, re.MULTILINE) for word in line.split()}
    assert taken == set(render.arguments(stacks.load())) | {"SOURCE_REVISION"}
