"""What a benchmark has done, one JSON line an event, flushed: after an interruption it is read and gone on with.

A torn last line, as a full disk or a power cut leaves it, is an event that did not happen.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fastfill.errors import NotReadyError, UsageError

PLAN = "plan.json"
JOURNAL = "journal.jsonl"
LOCK = ".lock"
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Unwritable(NotReadyError):
    """The folder cannot be written: nothing that is measured now could be kept."""


class Journal:
    """The folder of one benchmark.

    Args:
        folder: Made if need be.
        plan: The whole plan; what is in the folder already must have been made for the same one.

    Attributes:
        events: Everything up to now, oldest first.

    Raises:
        UsageError: The folder holds a benchmark of another plan, or something else.
        Unwritable: It cannot be written.
    """

    def __init__(self, folder: Path, plan: dict[str, Any]) -> None:
        self.folder = folder
        try:
            (folder / "raw").mkdir(parents=True, exist_ok=True)
            self._settle(plan)
        except OSError as error:
            raise unwritable(error, folder) from error
        self.events = read(folder)
        self._path = folder / JOURNAL
        self._cut_torn_line()

    def add(self, event: str, **fields: Any) -> None:
        """Write one event down; it is on the disk when this returns, and is not there at all where this raises.

        Raises:
            Unwritable: It cannot be.
        """
        entry = {"event": event, "time": round(time.time(), 3), **fields}
        line = json.dumps(entry) + "\n"
        whole = self._path.stat().st_size if self._path.exists() else 0
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except BaseException as error:
            # What comes next must not stand behind half a line.
            if self._path.exists():
                os.truncate(self._path, whole)
            if isinstance(error, OSError):
                raise unwritable(error, self._path) from error
            raise
        self.events.append(entry)

    def finished(self) -> set[str]:
        """The units that are not run again, whatever became of them."""
        return {event["unit"] for event in self.events if event["event"] == "unit"}

    def switch_left(self) -> str | None:
        """Where the kill switch stood before a benchmark that could not put it back; None where it was put back."""
        before = [event["before"] for event in self.events if event["event"] == "switch"]
        return str(before[-1]) if before and before[-1] else None

    def attempt(self, unit: str) -> int:
        """How often this unit was begun."""
        return sum(event["event"] == "begun" and event["unit"] == unit for event in self.events)

    def changed(self) -> list[str]:
        """Raw files of finished units that are not the bytes that were written; each is named."""
        done = self.finished()
        return [
            event["file"]
            for event in self.events
            if event["event"] == "run" and event.get("sha256") and event["unit"] in done
            if digest(self.folder / event["file"]) != event["sha256"]
        ]

    def _settle(self, plan: dict[str, Any]) -> None:
        place = self.folder / PLAN
        text = json.dumps(plan, indent=1, sort_keys=True) + "\n"
        if not place.exists():
            if (self.folder / JOURNAL).exists():
                raise UsageError("the folder has a journal and no plan", where=str(self.folder), next_step="--out NEW")
            part = place.with_suffix(".part")
            part.write_text(text, encoding="utf-8")
            part.replace(place)
            return
        try:
            old = json.loads(place.read_text(encoding="utf-8"))
        except ValueError as error:
            raise UsageError(f"the plan there cannot be read: {error}", where=str(place)) from None
        if old != json.loads(text):
            keys = sorted(key for key in {*old, *plan} if old.get(key) != json.loads(text).get(key))
            raise UsageError(
                f"the folder holds a benchmark with another {', '.join(keys)}",
                where=str(place),
                next_step="give the same options to go on with it, or another --out",
            )

    def _cut_torn_line(self) -> None:
        if not self._path.exists():
            return
        content = self._path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:
            with self._path.open("r+b") as file:
                file.truncate(len(whole))


def read(folder: Path) -> list[dict[str, Any]]:
    """The events of a folder, without a torn last line.

    Raises:
        UsageError: A line in the middle is not one of ours.
    """
    place = folder / JOURNAL
    try:
        content = place.read_bytes()
    except FileNotFoundError:
        return []
    events = []
    for number, line in enumerate(content[: content.rfind(b"\n") + 1].splitlines(), 1):
        try:
            event = json.loads(line)
            event["event"]
        except (ValueError, KeyError, TypeError):
            raise UsageError("a line of the journal is not one", where=f"{place}:{number}") from None
        events.append(event)
    return events


def digest(file: Path) -> str | None:
    """SHA-256 of a file; None where there is none."""
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return None


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold the folder: two at once would run the same cells, and each other's load would be in both.

    Raises:
        UsageError: Another process holds it.
        Unwritable: It cannot be made.
    """
    from filelock import FileLock, Timeout

    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(str(folder / LOCK), timeout=0):
            yield
    except Timeout:
        raise UsageError(
            "another command is at work in this folder",
            where=str(folder),
            next_step="wait for it, or give another --out",
        ) from None


def unwritable(error: OSError, where: Path) -> Unwritable:
    """The disk is full, or the folder is not ours."""
    full = error.errno in FULL
    return Unwritable(
        "the disk is full: the benchmark stopped, what was finished is kept"
        if full
        else f"cannot write: {error.strerror}",
        where=str(where),
        next_step="make room, then give the same command again: it goes on where it stopped"
        if full
        else "give another --out",
    )
