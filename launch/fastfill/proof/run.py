"""A whole proof: gather and decide, or replay what was gathered; then the files that were asked for."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastfill.errors import FastfillError, UsageError
from fastfill.proof import folder
from fastfill.proof.address import admin_key, api_key
from fastfill.proof.document import EvidencePart, ProveDocument, document
from fastfill.proof.evidence import Evidence
from fastfill.proof.gather import gather
from fastfill.proof.notes import next_step, notes
from fastfill.proof.options import plan
from fastfill.proof.redact import redacted
from fastfill.proof.report import talker
from fastfill.proof.server import Server
from fastfill.proof.transport import Deadline, Transport
from fastfill.proof.verdict import decide

if TYPE_CHECKING:
    from fastfill.prove import Wish

PAGE_S = 15.0
"""How long a page may take: status, passes, metrics."""


def live(wish: Wish) -> ProveDocument:
    """Prove a running server.

    Raises:
        FastfillError: No proof could be made at all.
    """
    start = time.monotonic()
    if not wish.url:
        raise UsageError("no server is given", where="--url", next_step="--url http://HOST:PORT, or --replay DIR")
    made = plan(wish)
    key, admin = api_key(wish.api_key_file), admin_key(wish.admin_api_key_file)
    if wish.evidence is not None:
        folder.prepare(wish.evidence)
    with Transport(wish.url, key=key, timeout_s=min(PAGE_S, wish.deadline)) as transport:
        server = Server(transport, admin_key=admin)
        evidence = gather(server, made, Deadline(wish.deadline), talker())
    judged = _judged(evidence, time.monotonic() - start)
    if wish.evidence is None:
        return judged
    digest = folder.write(
        wish.evidence,
        evidence,
        judged.model_dump(mode="json", by_alias=True),
        requests=server.sent,
        server_info=redacted(server.info, (key, admin)),
        stack=_stack(evidence),
    )
    return judged.model_copy(update={"evidence": EvidencePart(folder=str(wish.evidence), manifest_sha256=digest)})


def replay(place: Path, manifest_sha256: str = "") -> ProveDocument:
    """Judge a recorded proof again, with no server.

    Args:
        place: The folder.
        manifest_sha256: What its manifest must be, hexadecimal; empty where that was not noted down.

    Raises:
        UsageError: The folder is no evidence folder.
        FastfillError: It is not what was recorded, or this version judges it otherwise.
    """
    evidence, recorded = folder.read(place, manifest_sha256)
    judged = _judged(evidence, float(recorded.get("elapsed_s", 0.0)))
    if judged.verdict != recorded.get("verdict"):
        raise FastfillError(
            f"this version says {judged.verdict} ({judged.summary}), the one that recorded it "
            f"said {recorded.get('verdict')}",
            where=str(place),
            next_step="use the fastfill that wrote it: manifest.json names its version",
        )
    part = EvidencePart(folder=str(place), manifest_sha256=folder.digest(place), replayed=True)
    return judged.model_copy(update={"evidence": part})


def _judged(evidence: Evidence, elapsed_s: float) -> ProveDocument:
    verdict = decide(evidence)
    return document(
        evidence,
        verdict,
        next_step=next_step(evidence, verdict),
        notes=notes(evidence),
        elapsed_s=elapsed_s,
    )


def _stack(evidence: Evidence) -> dict[str, Any]:
    """What identifies the software: this checkout's stacks of the server's SGLang, and the kernel files."""
    from fastfill.pinning import stack as stacks

    status = evidence.status_after or evidence.status_before
    loaded = {name: stacks.load(name) for name in stacks.available()}
    return {
        "sglang": evidence.server.version,
        "plugin": status.version if status else None,
        "stacks": {name: one.digest() for name, one in loaded.items() if one.sglang.version == evidence.server.version},
        "kernel_files": {str(rank.rank): rank.kernel_files for rank in status.ranks} if status else {},
    }
