"""A real sglang-router on this machine, started as the role's unit starts it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from rig import ROOT

from fastfill.lab import cache

LOCK = ROOT / "requirements/router.txt"


def locked() -> str:
    """The name of what the lock asks for."""
    return f"router-{hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]}"


def interpreter() -> Path:
    """Of an environment with the router, made once a lock."""
    place = cache.folder("environments") / locked()
    if not (place / "done").is_file():
        shutil.rmtree(place, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        pip = [str(place / "bin/pip"), "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]
        subprocess.run([*pip, "--no-deps", "-r", str(LOCK)], check=True, timeout=600)
        (place / "done").touch()
    return place / "bin/python"


def start(folder: Path, control_key: str, arguments: list[Any]) -> subprocess.Popen[bytes]:
    """Start it, with its settings in a credential and its log in ``router.log`` of the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "router.json").write_text(json.dumps({"control_key": control_key, "arguments": arguments}))
    with (folder / "router.log").open("ab") as log:
        return subprocess.Popen(
            [str(interpreter()), str(ROOT / "ansible/roles/router/files/run_router.py")],
            env=os.environ | {"CREDENTIALS_DIRECTORY": str(folder)},
            stdout=log,
            stderr=log,
        )
