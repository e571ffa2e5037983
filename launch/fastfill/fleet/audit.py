"""Who did what to the cluster, when, and what came of it: one line of JSON each, only ever added to."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from fastfill.fleet.switch import CLOCK_FORMAT


def add(folder: Path, entry: dict[str, Any]) -> dict[str, Any]:
    """Append an entry; the time is this host's."""
    folder.mkdir(parents=True, exist_ok=True)
    line = {"when": time.strftime(CLOCK_FORMAT, time.gmtime()), **entry}
    # One write of one line: two that write at once do not mix.
    handle = os.open(folder / "audit.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, (json.dumps(line) + "\n").encode())
        os.fsync(handle)
    finally:
        os.close(handle)
    return line


def last(folder: Path, count: int) -> list[dict[str, Any]]:
    """The last entries, oldest first."""
    try:
        lines = (folder / "audit.jsonl").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    return [json.loads(line) for line in lines[-count:]]
