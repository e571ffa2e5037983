"""The options of ``fastfill prove``, checked and made into a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fastfill.errors import UsageError
from fastfill.proof.kvscales import wrong_scales
from fastfill.proof.logsource import Source
from fastfill.proof.modelconfig import layers_from
from fastfill.proof.visit import Plan
from fastfill.unheard import Rule, refuse

if TYPE_CHECKING:
    from fastfill.prove import Wish

WITNESSES = ("counters", "log", "trace")
DEFAULT_WITNESSES = "counters,log"
WITH_REPLAY = ("--replay", "--manifest-sha256", "--json", "--junit")


def plan(wish: Wish) -> Plan:
    """The plan.

    Raises:
        UsageError: An unknown witness, or the counters left out.
    """
    return Plan(
        prompt_tokens=wish.prompt_tokens,
        attempts=wish.attempts,
        count_layers=lambda folder: layers_from(wish.model_config, folder),
        find_scales=lambda folder, status: wrong_scales(wish.model_config, folder, status),
        witnesses=witnesses(wish.witness or DEFAULT_WITNESSES),
        named=witnesses(wish.witness) if wish.witness else frozenset(),
        log=Source(wish.container, wish.log, wish.journal),
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


def check(given: Mapping[str, Any]) -> None:
    """Refuse options that would be left unheard.

    Args:
        given: What stands on the command line, by the options' names.

    Raises:
        UsageError: One has no effect beside the others, or without another one.
    """
    if "--replay" in given:
        why = "a recorded proof is judged as it is, with no server"
        # With whatever value: even --load 0 is a wish for a server.
        refuse(
            dict.fromkeys(given, True),
            [Rule(name, name not in WITH_REPLAY, why, "--replay DIR alone") for name in sorted(given)],
        )
        return
    asked = witnesses(given.get("--witness") or DEFAULT_WITNESSES)
    log, trace, light = "log" in asked, "trace" in asked, bool(given.get("--light"))
    with_trace = f"--witness {','.join(name for name in WITNESSES if name in asked or name == 'trace')}"
    rules = (
        Rule("--manifest-sha256", True, "it is the hash of a folder that is replayed", "--replay DIR"),
        Rule("--load", light and given.get("--load", 0) > 0, "--light sends no load", "leave one of the two out"),
        Rule("--witness", light and trace, "--light takes no trace", "leave trace or --light out"),
        Rule("--profile-steps", not trace, "no trace is asked for", with_trace),
        Rule("--profile-dir", not trace, "no trace is asked for", with_trace),
        Rule("--log", not log, "the log is not asked for", "--witness counters,log"),
        Rule("--journal", not log, "the log is not asked for", "--witness counters,log"),
        Rule("--container", not log and not trace, "neither its log nor its traces are asked for", with_trace),
        Rule("--journal", "--log" in given, "the log is in one place", "leave out --log or --journal"),
        Rule(
            "--container",
            not trace and ("--log" in given or "--journal" in given),
            "the log is in one place, and no trace is asked for",
            f"leave out --container, or {with_trace}",
        ),
    )
    refuse(given, rules)
