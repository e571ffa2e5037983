"""stdout carries data, stderr carries talk."""

from __future__ import annotations

import json
import os
import shutil
import sys
from typing import Any, TextIO


def data(text: str) -> None:
    """Print one line or block of data to stdout."""
    sys.stdout.write(text + "\n")


def talk(text: str) -> None:
    """Print one line for the person who watches, to stderr."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def document(value: Any) -> None:
    """Print one JSON document to stdout."""
    data(json.dumps(value, indent=2, sort_keys=False))


def is_terminal(stream: TextIO | None = None) -> bool:
    """Whether progress and colour make sense on this stream (stderr by default)."""
    return (stream or sys.stderr).isatty()


def columns() -> int | None:
    """How wide text for people may be: what COLUMNS says, else stdout's terminal; None for a file or a pipe."""
    if not os.environ.get("COLUMNS") and not is_terminal(sys.stdout):
        return None
    return shutil.get_terminal_size((0, 0)).columns or None
