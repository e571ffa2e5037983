"""Writes the recommendation as a launch profile."""

from __future__ import annotations

import json
from pathlib import Path

from fastfill.errors import UsageError
from fastfill.planning.document import PlanDocument


def text(plan: PlanDocument, base: str) -> str:
    """A profile that extends another one.

    Args:
        base: The profile that the plan was made with.
    """
    assert plan.recommended is not None
    words = plan.recommended.flags
    lines = [
        f"# Planned for {plan.trace.requests} requests of {plan.trace.source}, objective {plan.objective}.",
        f"# Times: {plan.time_model.source}.",
        f"extends = {json.dumps(base)}",
        "",
        "[fastfill]",
        f"description = {json.dumps(plan.recommended.why)}",
        "",
        "[env]",
        *(f"{name} = {json.dumps(value)}" for name, value in plan.recommended.env.items()),
        "",
        "[flags]",
    ]
    names = {word.removeprefix("--"): words[at + 1 : at + 2] for at, word in enumerate(words) if word.startswith("--")}
    lines += [f"{name} = {_value(values)}" for name, values in names.items() if name != "mem-fraction-static"]
    if "disable-radix-cache" not in names:
        lines.append("disable-radix-cache = false")
    return "\n".join(lines) + "\n"


def _value(values: list[str]) -> str:
    return values[0] if values and not values[0].startswith("--") else "true"


def write(plan: PlanDocument, base: str, file: Path) -> None:
    """Write it to a new file.

    Raises:
        UsageError: It is there already, or cannot be written.
    """
    if plan.recommended is None:
        raise UsageError("there is no recommendation to write", where=str(file))
    try:
        with file.open("x", encoding="utf-8") as handle:
            handle.write(text(plan, base))
    except OSError as error:
        raise UsageError(f"the profile cannot be written: {error.strerror}", where=str(file)) from None
