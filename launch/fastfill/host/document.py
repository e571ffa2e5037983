"""The document of ``fastfill preflight --json``."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid")


class HostCheck(_Document):
    """One check: pass, warn or fail, the value that decided it, and the fix as a command."""

    id: str
    status: Literal["pass", "warn", "fail"]
    value: str
    fix: str


class NotChecked(_Document):
    """A check that could not be made."""

    id: str
    why: str


class Preflight(_Document):
    """Whether a host is ready. ``group_add`` are the numeric groups that the container needs."""

    schema_: Literal["fastfill.preflight/1"] = Field("fastfill.preflight/1", alias="schema")
    verdict: Literal["ready", "not_ready", "no_gpu"]
    gpus: int
    group_add: list[int]
    checks: list[HostCheck]
    not_checked: list[NotChecked]
