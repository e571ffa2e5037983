"""Reads the tables that ship beside this module."""

from __future__ import annotations

import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_FOLDER = Path(__file__).resolve().parent


@lru_cache(maxsize=4)
def table(name: str) -> dict[str, Any]:
    """The content of ``<name>.toml``."""
    return tomllib.loads((_FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
