"""Replace several files at once: all of them change, or none does."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from fastfill.errors import NotReadyError

_SUFFIX = ".fastfill"


def _stage(path: Path, content: bytes) -> Path:
    """Write the new content beside the file, synced, with the file's own mode and owner."""
    before = path.stat()
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=_SUFFIX, dir=path.parent)
    staged = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        staged.chmod(before.st_mode & 0o7777)
        if (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
            with contextlib.suppress(PermissionError):
                os.chown(staged, before.st_uid, before.st_gid)
    except BaseException:
        staged.unlink(missing_ok=True)
        raise
    return staged


def _sweep(path: Path) -> None:
    """Remove what a killed run staged beside this file."""
    for leftover in path.parent.glob(f".{path.name}.*{_SUFFIX}"):
        leftover.unlink(missing_ok=True)


def replace_all(changes: dict[Path, bytes]) -> None:
    """Give every file its new bytes, by staging all of them first and renaming each into place.

    The original of every file is staged too, so that undoing needs no more disk space than doing. Links are followed:
    the file that a link names is replaced, never the link.

    Args:
        changes: The new bytes of each existing file.

    Raises:
        NotReadyError: A file cannot be written (read-only target, full disk); every file is as it was.
    """
    real = {path.resolve(): content for path, content in changes.items()}
    staged: dict[Path, Path] = {}
    originals: dict[Path, Path] = {}
    replaced: list[Path] = []
    try:
        for path, content in real.items():
            _sweep(path)
            staged[path] = _stage(path, content)
            originals[path] = _stage(path, path.read_bytes())
        for path in real:
            # Noted before the rename: an interrupt between the two must undo it as well.
            replaced.append(path)
            staged[path].replace(path)
    except BaseException as error:
        for path in replaced:
            originals[path].replace(path)
        if isinstance(error, OSError):
            raise NotReadyError(
                f"the target cannot be written ({error.strerror or error}); nothing was changed",
                where=str(error.filename or ""),
                next_step="run it as the owner of the files, with the target writable and space on the disk",
            ) from error
        raise
    finally:
        for leftover in (*staged.values(), *originals.values()):
            leftover.unlink(missing_ok=True)


@contextlib.contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold the package folder while its state is read and changed, so that two runs cannot interleave.

    The lock is on the folder itself (flock): no file is left behind, and a dead holder releases it.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
