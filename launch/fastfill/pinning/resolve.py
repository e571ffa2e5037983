"""Looks up over the network what the stack file leaves unverified: each look-up is a command, built here, run below."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from typing import NamedTuple

from fastfill.errors import NotReadyError
from fastfill.pinning import stack as stacks
from fastfill.pinning.stack import Stack

_ELSEWHERE = "run it where there is a network, and copy docker/stacks; or write the value there by hand"


class Lookup(NamedTuple):
    """One look-up.

    Attributes:
        field: The field that it fills in.
        argv: The command that asks.
        read: The value in the command's answer, "" if it is not there.
    """

    field: str
    argv: list[str]
    read: Callable[[str], str]


def lookups(stack: Stack) -> list[Lookup]:
    """How each field is looked up. git asks for one name of a repository; nothing is cloned."""
    tag = f"refs/tags/v{stack.sglang.version}"
    return [
        Lookup("base.digest", inspect(f"{stack.base.image}:{stack.base.tag}"), _digest),
        # The second form is the commit that an annotated tag points to.
        Lookup("sglang.commit", ["git", "ls-remote", stack.sglang.repository, tag, f"{tag}^{{}}"], _commit),
        Lookup("model.revision", ["git", "ls-remote", f"{stack.model.hub}/{stack.model.repository}", "HEAD"], _commit),
    ]


def inspect(image: str) -> list[str]:
    """The command that asks a registry for an image's digest; nothing is pulled."""
    return ["docker", "buildx", "imagetools", "inspect", image, "--format", "{{json .Manifest}}"]


def _digest(answer: str) -> str:
    try:
        found = str(json.loads(answer).get("digest", ""))
    except (ValueError, AttributeError):
        return ""
    return found if re.fullmatch(r"sha256:[0-9a-f]{64}", found) else ""


def _commit(answer: str) -> str:
    lines = [line.split() for line in answer.splitlines() if line.strip()]
    return lines[-1][0] if lines and re.fullmatch(r"[0-9a-f]{40}", lines[-1][0]) else ""


def resolve(text: str, stack: Stack, fields: list[str]) -> tuple[str, dict[str, str]]:
    """Fill fields in.

    Args:
        text: The stack file.
        stack: The same, as values.
        fields: Which.

    Returns:
        The new text, in which they are no longer unverified, and the values.

    Raises:
        NotReadyError: A look-up failed.
    """
    found: dict[str, str] = {}
    for lookup in lookups(stack):
        if lookup.field in fields:
            found[lookup.field] = _ask(lookup)
            text = stacks.replace(text, lookup.field, found[lookup.field])
    left = [field for field in stack.unverified if field not in found]
    listing = ", ".join(f'"{field}"' for field in left)
    return re.sub(r"^unverified = \[.*\]$", f"unverified = [{listing}]", text, count=1, flags=re.MULTILINE), found


def _ask(lookup: Lookup) -> str:
    words = " ".join(lookup.argv)
    try:
        answer = subprocess.run(lookup.argv, capture_output=True, text=True, check=False, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotReadyError(
            f"{lookup.field} could not be looked up: {error}", where=words, next_step=_ELSEWHERE
        ) from None
    value = lookup.read(answer.stdout) if answer.returncode == 0 else ""
    if not value:
        raise NotReadyError(
            f"{lookup.field} could not be looked up",
            where=words,
            detail=answer.stderr.strip() or "the answer does not name one",
            next_step=_ELSEWHERE,
        )
    return value
