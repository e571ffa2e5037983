"""Files with one JSON line an event, kept from growing for ever."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

LONGEST = 1 << 20
"""Bytes of a file, beyond which it takes the place of the one before it: the last two are kept."""


def append(file: Path, record: dict[str, Any]) -> None:
    """Add one line. A full file is first renamed, ``audit.jsonl`` to ``audit.1.jsonl``, over the one before it.

    Raises:
        OSError: The line cannot be written.
    """
    with contextlib.suppress(FileNotFoundError):
        if file.stat().st_size >= LONGEST:
            file.replace(before(file))
    with file.open("a", encoding="utf-8") as opened:
        opened.write(json.dumps(record) + "\n")


def before(file: Path) -> Path:
    """Where a file's older lines are, if it has been full once."""
    return file.with_name(f"{file.stem}.1{file.suffix}")
