"""The state folder, tried before a server is started in it: it is written to, and its locks hold."""

from __future__ import annotations

import fcntl
import os
import tempfile
from contextlib import ExitStack
from pathlib import Path

from fastfill.errors import NotReadyError

ELSEWHERE = "give a folder on a local disk that you may write to, with --state-dir or FASTFILL_STATE_DIR"


def ready(place: Path) -> None:
    """Make the folder if need be, write in it, and lock it as the server will; nothing of that stays but the folder.

    Raises:
        NotReadyError: It cannot be made or written, its locks do not work, or another server uses it.
    """
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _refused("cannot be made", place, error) from None
    try:
        with tempfile.NamedTemporaryFile(dir=place, prefix=".try.") as file:
            # More than an inode holds, and onto the disk: a full one says so now.
            file.write(b"\0" * 4096)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise _refused("cannot be written", place, error) from None
    _locks(place)


def _locks(place: Path) -> None:
    with ExitStack() as opened:
        first, second = (_open(place, opened) for _ in range(2))
        try:
            fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise NotReadyError(
                "another server uses the state folder, and two would mix up their records",
                where=str(place),
                next_step="stop that server, or give this one a folder of its own with --state-dir",
            ) from None
        except OSError as error:
            raise _refused("cannot be locked", place, error) from None
        try:
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        except OSError as error:
            raise _refused("cannot be locked", place, error) from None
    raise NotReadyError(
        "the locks of the state folder's file system hold nobody off", where=str(place), next_step=ELSEWHERE
    )


def _open(place: Path, opened: ExitStack) -> int:
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise _refused("cannot be opened", place, error) from None
    opened.callback(os.close, descriptor)
    return descriptor


def _refused(what: str, place: Path, error: OSError) -> NotReadyError:
    return NotReadyError(f"the state folder {what} ({error.strerror})", where=str(place), next_step=ELSEWHERE)
