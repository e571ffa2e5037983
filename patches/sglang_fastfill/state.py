"""The state folder: kill switch, audit log, and what each rank tells the launcher.

    path.json              the kill switch: {"path": "on" | "off", "who", "why", "when"}; absent means on
    audit.jsonl            one line for each throw of the switch; audit.1.jsonl holds older ones
    passes/<rank>.jsonl    the rank's last forward passes, newest last
    status/<rank>.json     the rank's deployment conditions, hooks and model

Everything is written to a temporary name and renamed, or appended in one write, so that a reader never sees half. The
passes are ``ring``'s.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import logging
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from sglang_fastfill import journal

logger = logging.getLogger(__name__)

STATE_DIR = "FASTFILL_STATE_DIR"
ALLOW_FORCED_FALLBACK = "FASTFILL_ALLOW_FORCED_FALLBACK"
LONGEST_WORD = 500
"""Characters kept of who and why."""

_held: dict[str, int] = {}
"""State folders that this process serves from, by path, with the descriptor that holds the lock."""


def truthy(value: str | None) -> bool:
    """Whether an environment variable means on, by SGLang's own rule (``true`` and ``1``)."""
    return (value or "").strip().lower() in ("true", "1")


def folder() -> Path | None:
    """The state folder that FASTFILL_STATE_DIR names, None when it names none."""
    value = os.environ.get(STATE_DIR)
    return Path(value) if value else None


def prepare() -> Path:
    """Called in the launcher: make the state folder, name it in the environment and drop an earlier server's records.

    The kill switch and the audit log are kept. Without FASTFILL_STATE_DIR it is a fresh folder, removed at the end.

    Raises:
        SystemExit: Another server that is alive serves from this folder. Its records are left alone.
        OSError: The folder cannot be made or written.
    """
    place = folder()
    if place is None:
        place = Path(tempfile.mkdtemp(prefix="fastfill-"))
        atexit.register(shutil.rmtree, place, ignore_errors=True)
        os.environ[STATE_DIR] = str(place)
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    _hold(place)
    for kind in ("passes", "status"):
        (place / kind).mkdir(exist_ok=True)
        for stale in (place / kind).iterdir():
            if not stale.is_dir():
                stale.unlink(missing_ok=True)
    for abandoned in place.glob(".path.json.*"):
        abandoned.unlink(missing_ok=True)
    return place


def _hold(place: Path) -> None:
    """Lock the folder for as long as this process lives: another SGLang here would drop a live server's records.

    SGLang loads its plugins before it reads its arguments, so that even ``--help`` comes by.
    """
    name = str(place.resolve())
    if name in _held:
        return
    descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise SystemExit(
            f"fastfill: another server uses the state folder {place}, and two would mix up their records.\n"
            f"Next: set {STATE_DIR} to a folder of its own, or stop the other server."
        ) from None
    except OSError as error:
        logger.warning("fastfill: the state folder %s cannot be locked (%s)", place, error)
    _held[name] = descriptor


def _replace(target: Path, text: str) -> None:
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


class Switch:
    """The kill switch, as one rank sees it."""

    __slots__ = ("_file", "_off", "_stamp")

    def __init__(self, place: Path | None) -> None:
        self._file = str(place / "path.json") if place else None
        self._stamp: tuple[int, int] | None = None
        self._off = False

    def is_off(self) -> bool:
        """Whether the path is off now: one ``stat``; the file is read when it changed.

        A file that cannot be understood counts as off: the fallback is always right.
        """
        if self._file is None:
            return False
        try:
            stat = os.stat(self._file)  # noqa: PTH116 - pathlib costs three times as much, once per pass
        except FileNotFoundError:
            self._stamp, self._off = None, False
            return False
        except OSError as error:
            return self._unreadable(error)
        stamp = (stat.st_mtime_ns, stat.st_ino)
        if stamp != self._stamp:
            try:
                self._off = json.loads(Path(self._file).read_bytes())["path"] != "on"
            except (OSError, ValueError, KeyError, TypeError) as error:
                return self._unreadable(error)
            self._stamp = stamp
        return self._off

    def _unreadable(self, error: Exception) -> bool:
        if not self._off or self._stamp is not None:
            logger.warning("fastfill: %s cannot be read; the fast path is off until it can (%s)", self._file, error)
        # No stamp: it is tried again at the next pass, the cause may not lie in the file.
        self._stamp, self._off = None, True
        return True


def read_path(place: Path) -> dict[str, str]:
    """The kill switch as ``/fastfill/path`` shows it, and as :class:`Switch` takes it."""
    try:
        value = json.loads((place / "path.json").read_bytes())
        shown = {key: _plain(value.get(key, "")) for key in ("who", "why", "when")}
        return {"path": "on" if value["path"] == "on" else "off", **shown}
    except FileNotFoundError:
        return {"path": "on", "who": "", "why": "", "when": ""}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {"path": "off", "who": "", "why": "path.json cannot be read", "when": ""}


def _plain(value: Any) -> str:
    """One line of text that can be printed and encoded, of bounded length."""
    text = " ".join(str("" if value is None else value)[:LONGEST_WORD].split())
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


def write_path(place: Path, path: str, who: str, why: str) -> dict[str, str]:
    """Throw the kill switch and write the audit line; returns the new state.

    On a full disk ``off`` still takes: an empty file counts as off.

    Raises:
        OSError: The switch is where it was.
    """
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    value = {"path": path, "who": _plain(who), "why": _plain(why), "when": when}
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        _replace(place / "path.json", json.dumps(value) + "\n")
    except OSError:
        if path != "off":
            raise
        (place / "path.json").write_bytes(b"")
    logger.warning("fastfill: path %s by %s: %s", path, value["who"] or "someone", value["why"] or "-")
    try:
        journal.append(place / "audit.jsonl", value)
    except OSError as error:
        # The switch has moved, and that matters more; the line above is in the server's log.
        logger.error("fastfill: %s cannot be written: %s", place / "audit.jsonl", error)
    return value


def rank_name(rank: dict[str, int]) -> str:
    """``pp0-dp0-tp0``."""
    return "-".join(f"{key}{rank[key]}" for key in ("pp", "dp", "tp"))


def rank_of(name: str) -> dict[str, int]:
    """The inverse of :func:`rank_name`."""
    return {part[:2]: int(part[2:]) for part in name.split("-")}


def rank_key(rank: dict[str, int]) -> tuple[int, int, int]:
    """The order in which ranks are listed."""
    return (rank["pp"], rank["dp"], rank["tp"])


def write_status(place: Path, rank: dict[str, int], status: dict[str, Any]) -> None:
    """Publish what this rank found out about itself."""
    _replace(place / "status" / f"{rank_name(rank)}.json", json.dumps(status) + "\n")


def read_statuses(place: Path) -> list[dict[str, Any]]:
    """Every rank's status, in rank order."""
    statuses = []
    for file in sorted((place / "status").glob("*.json")):
        try:
            statuses.append(json.loads(file.read_bytes()))
        except (OSError, ValueError):
            # A rank that cannot be read is a rank that does not report, which prove calls INVALID.
            logger.warning("fastfill: %s cannot be read", file)
    return sorted(statuses, key=lambda status: rank_key(status["rank"]))
