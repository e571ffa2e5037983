"""Finds a Python that the lab's locks were made for."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from fastfill.errors import NotReadyError

_LEAST_GLIBC = (2, 34)


def require_platform() -> None:
    """SGLang's wheel is for x86_64 Linux with a glibc of 2.34 or newer.

    Raises:
        NotReadyError: This machine is another.
    """
    library, version = platform.libc_ver()
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if sys.platform != "linux" or platform.machine() != "x86_64" or library != "glibc" or numbers < _LEAST_GLIBC:
        raise NotReadyError(
            "the lab needs x86_64 Linux with glibc 2.34 or newer: SGLang's wheel is made for it",
            where=f"{sys.platform} {platform.machine()} {library} {version}".strip(),
            next_step="run it on such a machine, or in a container of one",
        )


def find(version: str) -> Path:
    """An interpreter of this minor version: FASTFILL_LAB_PYTHON, the running one, or pythonX.Y on PATH.

    Raises:
        NotReadyError: There is none.
    """
    given = os.environ.get("FASTFILL_LAB_PYTHON")
    candidates = [given] if given else [sys.executable, shutil.which(f"python{version}"), shutil.which("python3")]
    for candidate in candidates:
        if candidate and _version(candidate) == version:
            return Path(candidate)
    raise NotReadyError(
        f"the lab's packages are locked for Python {version}, and none was found",
        where=given or f"python{version} on PATH",
        next_step=f"install Python {version}, or set FASTFILL_LAB_PYTHON to one",
    )


def _version(python: str) -> str | None:
    if Path(python) == Path(sys.executable):
        return f"{sys.version_info.major}.{sys.version_info.minor}"
    try:
        answer = subprocess.run(
            [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None
