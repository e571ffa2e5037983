"""Result files: what was measured, with which command, from which sources."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def source_sha256(sources: list[str]) -> str:
    """SHA-256 over the files, in the order given; a result whose sources have changed is stale."""
    digest = hashlib.sha256()
    for name in sources:
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def write(file: Path, schema: str, command: str, sources: list[str], **fields: Any) -> None:
    """Write one stamped result file.

    Args:
        file: Where to.
        schema: Name and version of the document.
        command: What makes it again.
        sources: Files that the result depends on, relative to the repository.
        fields: The result itself.
    """
    document = {"schema": schema, "command": command, "sources": sources, "source_sha256": source_sha256(sources)}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(document | fields, indent=1) + "\n")
