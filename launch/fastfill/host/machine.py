"""The seam between preflight and a host: the live one, or one recorded as a folder of its files."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import time
from pathlib import Path
from typing import Any, NamedTuple, Protocol

RECORD = "host.json"
"""What a folder of plain files cannot hold: devices' groups, free disk, versions, the clock; and folders' listings."""

ENGINE_VERSION = ["docker", "version", "--format", "{{.Server.Version}}"]
COMPOSE_VERSION = ["docker", "compose", "version", "--short"]
_TIME_ERROR = 5
"""What adjtimex(2) answers while the clock is not synchronised."""


class DeviceNode(NamedTuple):
    """A device file: its group's numeric id and its permission bits."""

    gid: int
    mode: int


class Clock(NamedTuple):
    """The time in seconds since 1970, and whether it is kept in step (None: cannot tell)."""

    now: float
    synchronised: bool | None


class Machine(Protocol):
    """Where preflight reads a host from. Paths are absolute, as on the host itself."""

    def text(self, path: str) -> str | None:
        """A file's content without surrounding white space, None if it cannot be read."""

    def names(self, folder: str) -> list[str]:
        """The names in a folder, sorted; empty if there is none."""

    def node(self, path: str) -> DeviceNode | None:
        """A device file, None if it is not there."""

    def free_bytes(self, path: str) -> int | None:
        """Free bytes for a user where ``path`` lies or would lie, None if unknown."""

    def locate(self, path: str) -> Path:
        """Where a file of the host can be opened from here."""

    def version(self, of: str) -> str | None:
        """The version of ``docker`` or ``compose``: "" if it does not answer, None if it was not asked."""

    def clock(self) -> Clock | None:
        """The host's clock, None if it was not recorded."""


class LiveMachine:
    """This host."""

    def text(self, path: str) -> str | None:
        try:
            return Path(path).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return None

    def names(self, folder: str) -> list[str]:
        try:
            return sorted(path.name for path in Path(folder).iterdir())
        except OSError:
            return []

    def node(self, path: str) -> DeviceNode | None:
        try:
            found = Path(path).stat()
        except OSError:
            return None
        return DeviceNode(found.st_gid, stat.S_IMODE(found.st_mode))

    def free_bytes(self, path: str) -> int | None:
        for folder in (Path(path), *Path(path).parents):
            try:
                found = os.statvfs(folder)
            except OSError:
                continue
            return found.f_bavail * found.f_frsize
        return None

    def locate(self, path: str) -> Path:
        return Path(path)

    def version(self, of: str) -> str | None:
        argv = ENGINE_VERSION if of == "docker" else COMPOSE_VERSION
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return done.stdout.strip() if done.returncode == 0 else ""

    def clock(self) -> Clock | None:
        import ctypes

        try:
            state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512))
        except (OSError, AttributeError):
            state = -1
        return Clock(time.time(), None if state < 0 else state != _TIME_ERROR)


class RecordedMachine:
    """A host recorded in a folder: files under their own paths, the rest in ``host.json``. Never looks elsewhere."""

    def __init__(self, root: Path) -> None:
        self.root = root
        try:
            found = json.loads((root / RECORD).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            found = {}
        self.record: dict[str, Any] = found if isinstance(found, dict) else {}

    def locate(self, path: str) -> Path:
        place = self.root / path.lstrip("/")
        # A link out of the recording would lead to the host that reads it.
        return place if place.resolve().is_relative_to(self.root.resolve()) else self.root / "outside"

    def text(self, path: str) -> str | None:
        return LiveMachine().text(str(self.locate(path)))

    def names(self, folder: str) -> list[str]:
        recorded = self.record.get("names", {}).get(folder)
        return LiveMachine().names(str(self.locate(folder))) if recorded is None else list(map(str, recorded))

    def node(self, path: str) -> DeviceNode | None:
        recorded = self.record.get("devices", {}).get(path)
        if recorded is not None:
            return DeviceNode(int(recorded["gid"]), int(str(recorded["mode"]), 8))
        return LiveMachine().node(str(self.locate(path)))

    def free_bytes(self, path: str) -> int | None:
        recorded = self.record.get("free_bytes", {})
        for folder in (path, *map(str, Path(path).parents)):
            if folder in recorded:
                return int(recorded[folder])
        return None

    def version(self, of: str) -> str | None:
        found = self.record.get(of)
        return None if found is None else str(found)

    def clock(self) -> Clock | None:
        if "now" not in self.record:
            return None
        return Clock(float(self.record["now"]), self.record.get("synchronised"))


class Recorder:
    """Passes every question on to a machine and writes the answers to a folder, for ``RecordedMachine`` to repeat."""

    def __init__(self, machine: Machine, folder: Path) -> None:
        self.machine = machine
        self.folder = folder
        self.record: dict[str, Any] = {"names": {}, "devices": {}, "free_bytes": {}}

    def text(self, path: str) -> str | None:
        found = self.machine.text(path)
        if found is not None:
            place = self.folder / path.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(found + "\n", encoding="utf-8")
        return found

    def names(self, folder: str) -> list[str]:
        found = self.machine.names(folder)
        self.record["names"][folder] = found
        return found

    def node(self, path: str) -> DeviceNode | None:
        found = self.machine.node(path)
        if found is not None:
            self.record["devices"][path] = {"gid": found.gid, "mode": f"{found.mode:04o}"}
        return found

    def free_bytes(self, path: str) -> int | None:
        found = self.machine.free_bytes(path)
        if found is not None:
            self.record["free_bytes"][path] = found
        return found

    def locate(self, path: str) -> Path:
        return self.machine.locate(path)

    def version(self, of: str) -> str | None:
        found = self.machine.version(of)
        if found is not None:
            self.record[of] = found
        return found

    def clock(self) -> Clock | None:
        found = self.machine.clock()
        if found is not None:
            self.record |= {"now": found.now, "synchronised": found.synchronised}
        return found

    def finish(self) -> None:
        """Write ``host.json``."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / RECORD).write_text(json.dumps(self.record, indent=2) + "\n", encoding="utf-8")
