"""The DEP-3 header of a patch: what it does, where it comes from, whether upstream has it, and why it exists."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path
from typing import NamedTuple

from fastfill.errors import UsageError

_DIFF_STARTS = re.compile(r"^(---( |$)|diff --git |Index: )")
_REASON = re.compile(r"^\s*Reason:\s*(\S.*?)(?=^\s*\.?\s*$|\Z)", re.MULTILINE | re.DOTALL)
_DATE = re.compile(r"^\d{4}-\d{2}-\d{2}$")
_DATED = "write the day of the last change, as 2026-01-31"


class Header(NamedTuple):
    """The fields that every patch must have.

    Attributes:
        description: The first line of Description (or Subject).
        origin: Origin, or Author when the patch is our own.
        forwarded: ``no``, ``not-needed`` or an address.
        last_update: An ISO date.
        reason: Why we carry it, and when it can go.
    """

    description: str
    origin: str
    forwarded: str
    last_update: str
    reason: str


def _reason(fields: dict[str, str]) -> str:
    """The paragraph of the long description that starts with ``Reason:``; DEP-3 itself has no such field."""
    found = _REASON.search(fields.get("description") or fields.get("subject") or "")
    return " ".join(found.group(1).split()) if found else ""


def read_header(text: str, path: Path) -> Header:
    """Parse and validate the header of one patch.

    Raises:
        UsageError: A field is missing or is not what DEP-3 asks for.
    """
    from debian.deb822 import Deb822

    lines = []
    for line in text.splitlines():
        if _DIFF_STARTS.match(line):
            break
        lines.append(line)
    fields = {str(key).lower(): str(value).strip() for key, value in Deb822("\n".join(lines)).items()}

    def need(*names: str) -> str:
        for name in names:
            if fields.get(name.lower()):
                return fields[name.lower()]
        raise UsageError(
            f"the patch's DEP-3 header has no {' or '.join(names)}",
            where=str(path),
            next_step="write Description, Origin or Author, Forwarded, Last-Update and the Reason above the diff",
        )

    header = Header(
        description=need("Description", "Subject").splitlines()[0],
        origin=need("Origin", "Author", "From"),
        forwarded=need("Forwarded").splitlines()[0],
        last_update=need("Last-Update"),
        reason=_reason(fields) or " ".join(need("Reason").split()),
    )
    if header.forwarded not in {"no", "not-needed"} and "://" not in header.forwarded:
        raise UsageError(
            f"Forwarded is {header.forwarded!r}; DEP-3 allows no, not-needed or an address",
            where=str(path),
            next_step="correct the patch's header",
        )
    if not _DATE.match(header.last_update):
        raise UsageError(
            f"Last-Update is {header.last_update!r}, not a date YYYY-MM-DD", where=str(path), next_step=_DATED
        )
    try:
        date.fromisoformat(header.last_update)
    except ValueError as error:
        raise UsageError(f"Last-Update is {header.last_update!r}: {error}", where=str(path), next_step=_DATED) from None
    return header
