"""Options that would be left unheard are refused: somebody gave them because they should matter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from fastfill.errors import UsageError

if TYPE_CHECKING:
    import typer


class Rule(NamedTuple):
    """When an option has no effect.

    Attributes:
        name: The option, with its dashes.
        holds: Whether it has none beside the others.
        why: In half a sentence.
        next_step: What to write instead.
    """

    name: str
    holds: bool
    why: str
    next_step: str


def given(context: typer.Context) -> dict[str, Any]:
    """The options that stand on the command line, by their names there; a variable of the environment gives none."""
    return {
        parameter.opts[0]: context.params[parameter.name]
        for parameter in context.command.params
        if parameter.name and getattr(context.get_parameter_source(parameter.name), "name", "") == "COMMANDLINE"
    }


def refuse(options: Mapping[str, Any], rules: Iterable[Rule]) -> None:
    """Hold what is given against the rules.

    Args:
        options: As :func:`given` returns them.
        rules: In the order in which they are looked at.

    Raises:
        UsageError: A rule holds, and its option is there and not empty.
    """
    for rule in rules:
        if rule.holds and options.get(rule.name):
            raise UsageError(f"{rule.name} has no effect here: {rule.why}", where=rule.name, next_step=rule.next_step)
