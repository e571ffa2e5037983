"""The last forward passes of each rank, in files that the launcher reads: ``passes/<rank>.jsonl``, newest last."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

from sglang_fastfill.state import rank_key, rank_name, rank_of

LENGTH = 256
LONGEST_RID = 200
"""Characters kept of a request id: clients choose them."""


class Ring:
    """One rank's last forward passes."""

    def __init__(self, place: Path, rank: dict[str, int]) -> None:
        self._file = place / "passes" / f"{rank_name(rank)}.jsonl"
        self._older = self._file.with_suffix(".1.jsonl")
        self._handle: int | None = None
        self._lines = 0
        self._torn = False

    def append(self, record: dict[str, Any]) -> None:
        """Add one pass; half of the ring is dropped at a time.

        Raises:
            OSError: It could not be written; the next one may be.
        """
        record["rids"] = [rid[:LONGEST_RID] for rid in record["rids"]]
        line = (json.dumps(record, separators=(",", ":")) + "\n").encode()
        if self._handle is None:
            self._handle = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        if self._torn:
            line = b"\n" + line
        written = os.write(self._handle, line)
        self._torn = written < len(line)
        if self._torn:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._file))
        self._lines += 1
        if self._lines >= LENGTH:
            os.close(self._handle)
            self._handle, self._lines = None, 0
            self._file.replace(self._older)


def read(place: Path, rid: str = "", *, exact: bool = False) -> list[dict[str, Any]]:
    """The last passes of every rank, in rank order.

    Args:
        place: The state folder.
        rid: Keep passes that hold a request whose id starts with this; empty keeps all.
        exact: The id must be this one.
    """
    names = {file.name.removesuffix(".jsonl").removesuffix(".1") for file in (place / "passes").glob("*.jsonl")}
    ranks = [{"rank": rank_of(name), **_read(place / "passes" / f"{name}.jsonl", rid, exact)} for name in names]
    return sorted(ranks, key=lambda entry: rank_key(entry["rank"]))


def _read(file: Path, rid: str, exact: bool) -> dict[str, Any]:
    lines: list[bytes] = []
    # The newer file first: if the ring turns over in between, passes are read twice rather than lost.
    for part in (file, file.with_suffix(".1.jsonl")):
        try:
            lines = part.read_bytes().splitlines(keepends=True) + lines
        except FileNotFoundError:
            continue
    seen: dict[int, dict[str, Any]] = {}
    for line in lines:
        record = _record(line)
        if record is not None:
            seen[record["pass"]] = record
    records = [seen[number] for number in sorted(seen)][-LENGTH:]
    pid = records[-1]["pid"] if records else 0
    if rid:
        rid = rid[:LONGEST_RID]
        records = [r for r in records if any(one == rid or (not exact and one.startswith(rid)) for one in r["rids"])]
    for record in records:
        record.pop("pid", None)
    return {"pid": pid, "passes": records}


def _record(line: bytes) -> dict[str, Any] | None:
    """A line's pass; None for one that a full disk cut short, or that is being written."""
    try:
        record = json.loads(line) if line.endswith(b"\n") else None
    except ValueError:
        return None
    return record if isinstance(record, dict) else None
