"""The state folder: kill switch, audit log, and what each rank tells the launcher.

    path.json              the kill switch: {"path": "on" | "off", "who", "why", "when"}; absent means on
    audit.jsonl            one line for each throw of the switch
    passes/<rank>.jsonl    the rank's last forward passes, newest last
    status/<rank>.json     the rank's deployment conditions, hooks and model

Everything is written to a temporary name and renamed, or appended in one write, so that a reader never sees half.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
import time
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

STATE_DIR = "FASTFILL_STATE_DIR"
ALLOW_FORCED_FALLBACK = "FASTFILL_ALLOW_FORCED_FALLBACK"
RING_LENGTH = 256


def truthy(value: str | None) -> bool:
    """Whether an environment variable means on, by SGLang's own rule (``true`` and ``1``)."""
    return (value or "").strip().lower() in ("true", "1")


def folder() -> Path | None:
    """The state folder that FASTFILL_STATE_DIR names, None when it names none."""
    value = os.environ.get(STATE_DIR)
    return Path(value) if value else None


def prepare() -> Path:
    """Called in the launcher: make the state folder, name it in the environment and drop an earlier server's records.

    The kill switch and the audit log are kept.
    """
    place = folder()
    if place is None:
        place = Path(tempfile.gettempdir()) / f"fastfill-{os.getuid()}" / str(os.getpid())
        os.environ[STATE_DIR] = str(place)
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    for kind in ("passes", "status"):
        (place / kind).mkdir(exist_ok=True)
        for stale in (place / kind).iterdir():
            stale.unlink()
    return place


def _replace(target: Path, text: str) -> None:
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    with os.fdopen(handle, "w") as file:
        file.write(text)
    Path(name).replace(target)


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
        except OSError:
            self._stamp, self._off = None, False
            return False
        stamp = (stat.st_mtime_ns, stat.st_ino)
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._off = json.loads(Path(self._file).read_text())["path"] != "on"
            except (OSError, ValueError, KeyError, TypeError):
                logger.warning("fastfill: %s cannot be read; the fast path stays off until it can", self._file)
                self._off = True
        return self._off


def read_path(place: Path) -> dict[str, str]:
    """The kill switch as ``/fastfill/path`` shows it."""
    try:
        value = json.loads((place / "path.json").read_text())
        return {key: str(value.get(key, "")) for key in ("path", "who", "why", "when")}
    except FileNotFoundError:
        return {"path": "on", "who": "", "why": "", "when": ""}
    except (OSError, ValueError, AttributeError):
        return {"path": "off", "who": "", "why": "path.json cannot be read", "when": ""}


def write_path(place: Path, path: str, who: str, why: str) -> dict[str, str]:
    """Throw the kill switch and write the audit line; returns the new state."""
    value = {"path": path, "who": who, "why": why, "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    _replace(place / "path.json", json.dumps(value) + "\n")
    with (place / "audit.jsonl").open("a") as audit:
        audit.write(json.dumps(value) + "\n")
    return value


class Ring:
    """The last forward passes of one rank, in a file that the launcher reads."""

    def __init__(self, place: Path, rank: dict[str, int]) -> None:
        self._file = place / "passes" / f"{rank_name(rank)}.jsonl"
        self._older = self._file.with_suffix(".1.jsonl")
        self._handle: int | None = None
        self._lines = 0

    def append(self, record: dict[str, Any]) -> None:
        """Add one pass; half of the ring is dropped at a time."""
        if self._handle is None:
            self._handle = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        os.write(self._handle, (json.dumps(record, separators=(",", ":")) + "\n").encode())
        self._lines += 1
        if self._lines >= RING_LENGTH:
            os.close(self._handle)
            self._handle, self._lines = None, 0
            self._file.replace(self._older)


def rank_name(rank: dict[str, int]) -> str:
    """``pp0-dp0-tp0``."""
    return "-".join(f"{key}{rank[key]}" for key in ("pp", "dp", "tp"))


def rank_of(name: str) -> dict[str, int]:
    """The inverse of :func:`rank_name`."""
    return {part[:2]: int(part[2:]) for part in name.split("-")}


def write_status(place: Path, rank: dict[str, int], status: dict[str, Any]) -> None:
    """Publish what this rank found out about itself."""
    _replace(place / "status" / f"{rank_name(rank)}.json", json.dumps(status) + "\n")


def read_statuses(place: Path) -> list[dict[str, Any]]:
    """Every rank's status, in rank order."""
    statuses = [json.loads(file.read_text()) for file in (place / "status").glob("*.json")]
    return sorted(statuses, key=lambda status: rank_name(status["rank"]))


def read_passes(place: Path, rid_prefix: str = "") -> list[dict[str, Any]]:
    """The last passes of every rank, in rank order; with a prefix, only passes that hold such a request."""
    ranks: list[dict[str, Any]] = []
    for file in sorted((place / "passes").glob("*.jsonl")):
        if file.name.endswith(".1.jsonl"):
            continue
        ranks.append({"rank": rank_of(file.stem), **_read_ring(file, rid_prefix)})
    for file in sorted((place / "passes").glob("*.1.jsonl")):
        name = file.name.removesuffix(".1.jsonl")
        if not (place / "passes" / f"{name}.jsonl").exists():
            ranks.append({"rank": rank_of(name), **_read_ring(file.with_name(f"{name}.jsonl"), rid_prefix)})
    return sorted(ranks, key=lambda entry: rank_name(entry["rank"]))


def _read_ring(file: Path, rid_prefix: str) -> dict[str, Any]:
    lines: list[bytes] = []
    # The newer file first: if the ring turns over in between, passes are read twice rather than lost.
    for part in (file, file.with_suffix(".1.jsonl")):
        try:
            lines = part.read_bytes().splitlines(keepends=True) + lines
        except FileNotFoundError:
            continue
    seen: dict[int, dict[str, Any]] = {}
    for line in lines:
        if line.endswith(b"\n"):
            record = json.loads(line)
            seen[record["pass"]] = record
    records = [seen[number] for number in sorted(seen)][-RING_LENGTH:]
    pid = records[-1]["pid"] if records else 0
    if rid_prefix:
        records = [r for r in records if any(rid.startswith(rid_prefix) for rid in r["rids"])]
    for record in records:
        record.pop("pid", None)
    return {"pid": pid, "passes": records}
