"""The options of ``fastfill prove``, checked and made into a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastfill.errors import UsageError
from fastfill.proof.logsource import Source
from fastfill.proof.modelconfig import layers_from
from fastfill.proof.visit import Plan

if TYPE_CHECKING:
    from fastfill.prove import Wish

WITNESSES = ("counters", "log", "trace")


def plan(wish: Wish) -> Plan:
    """The plan.

    Raises:
        UsageError: An unknown witness, the counters left out, or more than one place for the log.
    """
    return Plan(
        prompt_tokens=wish.prompt_tokens,
        attempts=wish.attempts,
        count_layers=lambda folder: layers_from(wish.model_config, folder),
        witnesses=witnesses(wish.witness),
        log=source(wish),
        profile_steps=wish.profile_steps,
        profile_dir=wish.profile_dir,
        load=0 if wish.light else wish.load,
        light=wish.light,
        min_coverage=wish.min_coverage,
    )


def witnesses(text: str) -> frozenset[str]:
    """The witnesses of a comma list.

    Raises:
        UsageError: One is unknown, or the counters are missing.
    """
    asked = frozenset(name.strip() for name in text.split(",") if name.strip())
    unknown = sorted(asked - set(WITNESSES))
    if unknown:
        raise UsageError(
            f"there is no witness {unknown[0]}", where="--witness", next_step=f"--witness {','.join(WITNESSES)}"
        )
    if "counters" not in asked:
        raise UsageError(
            "the counters cannot be left out: the ring of passes alone tells which pass was the probe's",
            where="--witness",
            next_step=f"--witness {','.join(('counters', *sorted(asked)))}",
        )
    return asked


def source(wish: Wish) -> Source:
    """Where the log is.

    Raises:
        UsageError: More than one place is given. A container beside a file is none: it is where the traces are.
    """
    if wish.journal and (wish.container or wish.log):
        raise UsageError("the log is in one place", where="--journal", next_step="leave out --container or --log")
    return Source(wish.container, wish.log, wish.journal)
