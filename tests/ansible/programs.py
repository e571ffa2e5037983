"""Programs that a test needs beside Python, from Debian's packages; nothing of them starts by itself."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ENGINE = Path(__file__).parents[1] / "docker/engine.sh"
PACKAGES = {"haproxy": "haproxy/bookworm", "rsync": "rsync/bookworm", "sshd": "openssh-server/bookworm"}
CANNOT = 4
"""What engine.sh exits with where this machine cannot have packages."""


def need(*names: str) -> None:
    """Install those that are missing; where this machine cannot have them the test is skipped."""
    missing = [PACKAGES[name] for name in names if not shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin")]
    if missing:
        done = subprocess.run([str(ENGINE), "packages", *missing], capture_output=True, text=True, check=False)
        if done.returncode == CANNOT:
            pytest.skip(done.stderr)
        assert done.returncode == 0, done.stderr
