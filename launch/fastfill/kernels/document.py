"""The document of ``fastfill kernel identify --json``."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from fastfill.kernels.installation import Installation
from fastfill.kernels.judge import Identity
from fastfill.kernels.revisions import is_broken_hash, of_hash


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class File(_Document):
    """One kernel object. ``revisions`` is empty for a hash that is not published."""

    name: str
    sha256: str
    arch: str
    symbol: str
    revisions: list[str]
    broken: bool


class Check(_Document):
    """One check, with what to do where it does not pass."""

    id: str
    status: Literal["pass", "warn", "fail"]
    value: str
    fix: str


class KernelIdentity(_Document):
    """What an aiter holds of the fp8 head-dim-256 kernel."""

    schema_: Literal["fastfill.kernel/1"] = Field("fastfill.kernel/1", alias="schema")
    path: str
    kind: Literal["checkout", "site-packages", "object"]
    revision: Literal["A", "B", "C", "D", "unknown"]
    broken: bool
    missing: bool
    files: list[File]
    checks: list[Check]


def document(found: Installation, identity: Identity) -> KernelIdentity:
    """The document of what was found and how it was judged."""
    return KernelIdentity.model_validate(
        {
            "path": str(found.path),
            "kind": found.kind,
            "revision": identity.revision,
            "broken": identity.broken,
            "missing": identity.missing,
            "files": [
                {
                    "name": item.name,
                    "sha256": item.sha256,
                    "arch": item.arch,
                    "symbol": item.symbol,
                    "revisions": list(of_hash(item.sha256)),
                    "broken": is_broken_hash(item.sha256),
                }
                for item in found.objects
            ],
            "checks": [finding._asdict() for finding in identity.findings],
        }
    )
