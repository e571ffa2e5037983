"""Where the lab keeps its environments, models and running servers."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from fastfill.errors import NotReadyError


def root() -> Path:
    """The cache folder: FASTFILL_CACHE, else XDG_CACHE_HOME/fastfill, else ~/.cache/fastfill. It may not exist yet."""
    given = os.environ.get("FASTFILL_CACHE")
    if given:
        return Path(given).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "fastfill"


def folder(name: str) -> Path:
    """A folder of the cache, made if need be.

    Raises:
        NotReadyError: It cannot be made.
    """
    place = root() / name
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NotReadyError(
            f"the cache folder cannot be made ({error.strerror})",
            where=str(place),
            next_step="set FASTFILL_CACHE to a folder that you may write to",
        ) from None
    return place


def require_space(place: Path, needed_gb: float, why: str) -> None:
    """Check the disk before something large is begun.

    Args:
        place: An existing folder on the disk in question.
        needed_gb: In 10^9 bytes.
        why: What needs it, for the message.

    Raises:
        NotReadyError: Less is free.
    """
    free_gb = shutil.disk_usage(place).free / 1e9
    if free_gb < needed_gb:
        raise NotReadyError(
            f"{why} needs about {needed_gb:.0f} GB, and {free_gb:.1f} GB are free",
            where=str(place),
            next_step="make room, or set FASTFILL_CACHE to a folder on a larger disk",
        )
