"""Who did what to the cluster, when, and what came of it: one line of JSON each, only ever added to."""

from __future__ import annotations

import contextlib
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
    handle = os.open(folder / "audit.jsonl", os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        size = os.fstat(handle).st_size
        # What comes after a half line must not be lost with it.
        torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
        os.write(handle, (("\n" if torn else "") + json.dumps(line) + "\n").encode())
        os.fsync(handle)
    finally:
        os.close(handle)
    return line


def last(folder: Path, count: int) -> list[dict[str, Any]]:
    """The last entries, oldest first; a line that a full disk or a power cut left half is passed over."""
    try:
        lines = (folder / "audit.jsonl").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    found = []
    for line in lines[-count:]:
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return found
