"""Variables as a command line gives them."""

from __future__ import annotations

from fastfill.errors import UsageError


def parse(words: list[str] | None) -> dict[str, str]:
    """The words of ``--env``, each ``NAME=VALUE``, as names and values; a later word wins.

    Raises:
        UsageError: A word is not of that form.
    """
    found: dict[str, str] = {}
    for word in words or []:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise UsageError("this is no variable", where=f"--env {word}", next_step="write NAME=VALUE")
        found[name] = value
    return found
