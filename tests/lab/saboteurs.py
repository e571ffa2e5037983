"""Lab servers that are broken while they run, and the proof of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from fastfill.lab import command, packages
from fastfill.lab.spec import LabSpec

PLUGIN = Path(__file__).resolve().parent / "saboteur"
_folder = Path(tempfile.mkdtemp(prefix="fastfill-saboteur-"))


def words_file() -> Path:
    """What the plugin reads, one file for all servers of this run."""
    return _folder / "words"


def say(words: str) -> None:
    """From the next forward pass on the server does this; nothing for a good server."""
    part = words_file().with_suffix(".part")
    part.write_text(words)
    part.replace(words_file())


def spec(**more: Any) -> LabSpec:
    """A lab server with the plugin on its path."""
    path = [PLUGIN, *command.python_path(packages.link())]
    env = {"PYTHONPATH": os.pathsep.join(map(str, path)), "FASTFILL_SABOTEUR": str(words_file())}
    return LabSpec(**{**more, "env": {**env, **more.pop("env", {})}})


def prove(url: str, *words: str) -> tuple[int, dict[str, Any], str]:
    """Run the command as an operator would; returns its exit code, its document and what it said."""
    argv = [sys.executable, "-m", "fastfill", "prove", "--url", url, "--json", "--load", "0", *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    print(done.stderr)
    return done.returncode, json.loads(done.stdout), done.stderr
