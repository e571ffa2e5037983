"""The environment of the harnesses: SGLang's benchmark and lm-eval, lying on the lab's own environment."""

from __future__ import annotations

import os
from pathlib import Path

from fastfill import data
from fastfill.lab import command, install, packages, patched, stacks


def interpreter() -> tuple[Path, dict[str, str]]:
    """The interpreter that has both harnesses, and its environment variables; installed on first use.

    Raises:
        NotReadyError: No room, no network, or pip failed.
    """
    base = stacks.find(stacks.DEFAULT)
    # SGLang is the base's: patched or not makes no difference to a client.
    patched.sources(base, install.ensure(base))
    mine = base._replace(name="harness", lock=data.requirements() / "lab-bench.txt", patched=False, over=base)
    environment = install.ensure(mine)
    return install.python_of(environment), command.on_a_cpu(packages.link(), os.environ)
