"""The JSON document of ``fastfill patch``."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

Overall = Literal["applied", "not_applied", "partial", "foreign", "built_in"]


class PatchLine(BaseModel):
    """One patch of the series."""

    name: str
    sha256: str
    description: str
    reason: str


class FileLine(BaseModel):
    """One file of the target.

    ``applied`` counts the patches of the series that this file carries, of ``total`` that touch it; it is None when
    the file is not a listed source (or is missing, and then ``sha256`` is None too).
    """

    path: str
    sha256: str | None
    applied: int | None
    total: int


class PatchReport(BaseModel):
    """What was found at the target and what was done; ``changed`` says whether any file was written."""

    schema_: Literal["fastfill.patch/1"] = Field(default="fastfill.patch/1", serialization_alias="schema")
    action: Literal["apply", "check", "reverse", "status"]
    target: str
    version: str | None
    series: str | None
    state: Overall
    changed: bool
    patches: list[PatchLine]
    files: list[FileLine]
