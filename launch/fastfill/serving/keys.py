"""API keys: read from files, handed to SGLang in a file that only its user may read. Never in an argv or a variable."""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from pathlib import Path

from fastfill.errors import NotReadyError, UsageError
from fastfill.serving.flags import Flag

NAME = "keys.yaml"
_STEP = "give a readable file with the key and nothing else"


def read(files: dict[str, Path | None], named: Collection[str] = ()) -> dict[str, str]:
    """The keys that are given; an empty file is none, as compose mounts one where no key is wanted.

    Args:
        files: SGLang's flag to the file.
        named: Flags whose file somebody named outright: a server that is open all the same is not what was meant.

    Raises:
        UsageError: A file cannot be read, is no single line of printable ASCII, or is named and empty.
    """
    found: dict[str, str] = {}
    for name, file in files.items():
        if file is None:
            continue
        try:
            key = file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"the file of --{name} cannot be read: {error}", where=str(file), next_step=_STEP
            ) from None
        if not key and name in named:
            raise UsageError(f"the file of --{name} is empty", where=str(file), next_step=_STEP)
        if key and (not key.isascii() or not key.isprintable() or " " in key):
            raise UsageError(
                f"the file of --{name} is not one line of printable ASCII", where=str(file), next_step=_STEP
            )
        if key:
            found[name] = key
    return found


def flags(place: Path, keys: dict[str, str]) -> list[Flag]:
    """The flag that names the file; none where there are no keys."""
    words = ("--config", str(place / NAME))
    return [Flag("config", words[1:], words)] if keys else []


def write(place: Path, keys: dict[str, str]) -> None:
    """Write the file, readable by its owner alone; without keys, remove what an earlier start left.

    Raises:
        NotReadyError: It cannot be written.
    """
    file = place / NAME
    try:
        file.unlink(missing_ok=True)
        if not keys:
            return
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as opened:
            # A JSON string is a YAML string.
            opened.writelines(f"{name}: {json.dumps(key)}\n" for name, key in keys.items())
    except OSError as error:
        raise NotReadyError(
            f"the keys cannot be handed over ({error.strerror})",
            where=str(file),
            next_step="give --state-dir a folder that the server's user may write to",
        ) from None
