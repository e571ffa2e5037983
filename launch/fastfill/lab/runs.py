"""The run folders: one for each port, with what is known of the server there."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fastfill.lab import cache, process
from fastfill.lab.process import Session
from fastfill.lab.spec import LabSpec

State = Literal["starting", "running", "dead"]


@dataclass(frozen=True)
class Run:
    """One server's record.

    Attributes:
        spec: What was asked for.
        session: The server's processes.
        ready: Whether it has answered once.
        state_dir: Its state folder.
    """

    spec: LabSpec
    session: Session
    ready: bool
    state_dir: Path

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.spec.port}"

    @property
    def log(self) -> Path:
        """Its output."""
        return folder(self.spec.port) / "server.log"

    def state(self) -> State:
        """Whether it lives, and has answered."""
        if not process.alive(self.session):
            return "dead"
        return "running" if self.ready else "starting"

    def document(self) -> dict[str, Any]:
        """As ``lab status --json`` prints it."""
        return {
            "port": self.spec.port,
            "url": self.url,
            "state": self.state(),
            "pid": self.session.leader,
            "memory_mb": process.memory_mb(self.session) if self.state() != "dead" else None,
            "log": str(self.log),
            "state_dir": str(self.state_dir),
            "spec": self.spec.document(),
        }


def folder(port: int) -> Path:
    """The run folder of a port, made if need be."""
    cache.folder("run")
    place = place_of(port)
    place.mkdir(exist_ok=True)
    return place


def place_of(port: int) -> Path:
    """The run folder of a port, which may not exist."""
    return cache.root() / "run" / str(port)


def write(run: Run) -> None:
    """Record a server; a reader never sees half."""
    place = folder(run.spec.port) / "server.json"
    value = {
        "spec": run.spec.document(),
        "pid": run.session.leader,
        "started": run.session.started,
        "ready": run.ready,
        "state_dir": str(run.state_dir),
    }
    part = place.with_suffix(".part")
    part.write_text(json.dumps(value, indent=1), encoding="utf-8")
    part.replace(place)


def read(port: int) -> Run | None:
    """The record of a port, None when there is none or it cannot be understood."""
    try:
        value = json.loads((cache.root() / "run" / str(port) / "server.json").read_text(encoding="utf-8"))
        return Run(
            LabSpec.read(value["spec"]),
            Session(int(value["pid"]), float(value["started"])),
            bool(value["ready"]),
            Path(value["state_dir"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def forget(port: int) -> None:
    """Remove the record; the log and the state folder stay for the reader."""
    (cache.root() / "run" / str(port) / "server.json").unlink(missing_ok=True)


def every() -> list[Run]:
    """All records, by port."""
    place = cache.root() / "run"
    ports = sorted(int(entry.name) for entry in place.iterdir() if entry.name.isdigit()) if place.is_dir() else []
    return [run for run in map(read, ports) if run is not None]
