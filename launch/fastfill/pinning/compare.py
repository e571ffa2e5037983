"""Intended beside live, field by field. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, Field

from fastfill.pinning.stack import Stack


class Line(BaseModel):
    """One field.

    Attributes:
        name: As ``table.key``, or ``flag.<name>`` and ``env.<NAME>`` for what a profile asks of a running server.
        intended: The stack's or the profile's value.
        live: What was found; None where it was found to be absent.
        ok: Whether they agree.
    """

    name: str
    intended: str
    live: str | None
    ok: bool


class VerifyDocument(BaseModel):
    """``fastfill pins verify --json``."""

    schema_: Literal["fastfill.pins-verify/1"] = Field(default="fastfill.pins-verify/1", serialization_alias="schema")
    stack: str
    looked_at: str
    fields: list[Line]
    not_looked_at: list[str]


def compare(intended: Mapping[str, Any], live: Mapping[str, str | None]) -> tuple[list[Line], list[str]]:
    """Every intended value beside the live one.

    Returns:
        The fields that were looked at, and the names of those that could not be.
    """
    lines = []
    for name, value in intended.items():
        if name in live:
            found = live[name]
            lines.append(Line(name=name, intended=str(value), live=found, ok=found == str(value)))
    return lines, [name for name in intended if name not in live]


def intended(stack: Stack) -> dict[str, Any]:
    """What can be looked up in a running server or an image: the host and the sources' addresses cannot."""
    left_out = (
        "name",
        "unverified",
        "host.",
        "base.image",
        "base.tag",
        "aiter.repository",
        "aiter.version",
        "model.hub",
    )
    values = {name: value for name, value in stack.values() if not name.startswith(left_out)}
    del (
        values["sglang.repository"],
        values["patches.series"],
        values["aiter.submodule.path"],
        values["aiter.submodule.repository"],
    )
    # What is not resolved yet is no intention.
    return {name: value for name, value in values.items() if value != ""}
