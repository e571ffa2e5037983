"""Where an instance's files lie on its host, and the links that say which release is which."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Literal

from fastfill.errors import NotReadyError, UsageError

ROOT = Path("/var/lib/fastfill")
SCHEMA = 1
"""Of a release folder. A release of a newer schema is refused, never guessed at."""
Link = Literal["proven", "previous", "candidate"]
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")


def checked(name: str) -> str:
    """The name of an instance, which becomes a folder, a unit and a compose project.

    Raises:
        UsageError: It cannot be all of these.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"'{name}' is no name for an instance",
            where="instances",
            next_step="up to 31 lower-case letters, digits and dashes, a letter or digit first",
        )
    return name


def write(file: Path, value: Any, mode: int = 0o644) -> None:
    """Replace a JSON file in one step; a reader sees the old text or the new one."""
    part = file.with_name(f".{file.name}.{os.getpid()}")
    part.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    part.chmod(mode)
    with part.open("rb") as written:
        os.fsync(written.fileno())
    part.replace(file)


@contextlib.contextmanager
def held(file: Path) -> Iterator[None]:
    """Hold a file of locks against other processes of this host; waits for its turn."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def read(file: Path) -> dict[str, Any]:
    """A JSON object, empty where there is none or it cannot be read."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


class Instance:
    """One server of a host: its releases, its links, what was proven.

    Args:
        root: The fleet's folder on this host.
        name: The instance.
    """

    def __init__(self, root: Path, name: str) -> None:
        self.name = checked(name)
        self.root = root
        self.folder = root / "instances" / name
        self.project = f"fastfill-{name}"
        self.container = f"{self.project}-server-1"
        self.unit = f"fastfill@{name}.service"

    def exists(self) -> bool:
        """Whether this host was told of the instance."""
        return (self.folder / "instance.json").is_file()

    def settings(self) -> dict[str, Any]:
        """``instance.json``: url, routers.

        Raises:
            NotReadyError: This host was never told of the instance.
        """
        found = read(self.folder / "instance.json")
        if not found:
            raise NotReadyError(
                f"this host has no instance {self.name}",
                where=str(self.folder),
                next_step="ansible-playbook ansible/site.yml",
            )
        return found

    def release(self, name: str) -> Path:
        """The folder of a release."""
        return self.folder / "releases" / name

    def manifest(self, name: str) -> dict[str, Any]:
        """``release.json`` of a release.

        Raises:
            NotReadyError: It is not on this host, or of a schema that this version does not know.
        """
        found = read(self.release(name) / "release.json")
        if not found:
            raise NotReadyError(
                f"release {name} is not on this host",
                where=str(self.release(name)),
                next_step="ansible-playbook ansible/site.yml puts it there",
            )
        if found.get("schema") != SCHEMA:
            raise NotReadyError(
                f"release {name} has schema {found.get('schema')}, this version reads {SCHEMA}",
                where=str(self.release(name)),
                next_step="run the playbooks of the version that wrote it",
            )
        return found

    def releases(self) -> list[str]:
        """The releases on this host, oldest first."""
        try:
            there = [each for each in (self.folder / "releases").iterdir() if (each / "release.json").is_file()]
        except OSError:
            return []
        return [each.name for each in sorted(there, key=lambda each: each.stat().st_mtime)]

    def link(self, kind: Link) -> str | None:
        """The release that a link names, None where the link or the release is missing."""
        try:
            name = (self.folder / kind).readlink().name
        except OSError:
            return None
        return name if (self.release(name) / "release.json").is_file() else None

    def point(self, kind: Link, name: str | None) -> None:
        """Let a link name another release, in one step; None takes it away."""
        place = self.folder / kind
        if name is None:
            place.unlink(missing_ok=True)
            return
        part = place.with_name(f".{kind}.{os.getpid()}")
        part.unlink(missing_ok=True)
        part.symlink_to(Path("releases") / name)
        part.replace(place)

    def evidence(self, name: str) -> dict[str, Any]:
        """What is known of a release on this host: verdict, when, seconds to load; empty if it was never tried."""
        return read(self.folder / "evidence" / f"{name}.json")

    def keep_evidence(self, name: str, value: dict[str, Any]) -> None:
        """Keep what is known of a release, in place of what was."""
        (self.folder / "evidence").mkdir(parents=True, exist_ok=True)
        write(self.folder / "evidence" / f"{name}.json", value)

    def in_service(self) -> bool:
        """Whether the routers should send requests here."""
        return (self.folder / "in_service").exists()

    def serve(self, wanted: bool) -> None:
        """Say whether the routers should send requests here; the timer brings them in step."""
        flag = self.folder / "in_service"
        if wanted:
            flag.touch()
        else:
            flag.unlink(missing_ok=True)

    def note_away(self, away: bool) -> None:
        """Note that it is out of service for a while only."""
        note = self.folder / "away"
        if away:
            note.touch()
        else:
            note.unlink(missing_ok=True)

    def is_away(self) -> bool:
        """Whether it is out of service for a while only, or was when its turn was broken off."""
        return (self.folder / "away").exists()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the instance for a switch: two at a time would each undo the other's.

        Raises:
            NotReadyError: Somebody else holds it.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("w") as handle:
            # Whoever only looks holds it for a moment.
            for left in range(10, -1, -1):
                if _locked(handle):
                    break
                if not left:
                    raise NotReadyError(
                        f"a switch of {self.name} is still going on on this host",
                        where=str(self.folder),
                        next_step="wait for it: ansible-playbook ansible/status.yml shows it",
                    )
                time.sleep(0.05)
            yield

    def switching(self) -> bool:
        """Whether a switch goes on now; one that was broken off does not."""
        try:
            with (self.folder / "lock").open("r") as handle:
                return not _locked(handle)
        except OSError:
            return False


def _locked(handle: IO[str]) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def instances(root: Path) -> list[Instance]:
    """The instances that this host was told of, by name."""
    try:
        names = sorted(each.name for each in (root / "instances").iterdir() if _NAME.fullmatch(each.name))
    except OSError:
        return []
    return [found for found in (Instance(root, name) for name in names) if found.exists()]
