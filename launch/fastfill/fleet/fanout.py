"""Who copies a model from whom: each host that has it gives it to two others at a time, and so do these. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def assign(
    have: Sequence[str],
    want: Sequence[str],
    each: int = 2,
    tried: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, str]:
    """One round: host that wants the model to the host that gives it.

    Args:
        have: Hosts with a verified copy.
        want: Hosts without one.
        each: How many a host gives it to at the same time.
        tried: Host to those that it could not get it from; it is given to nobody twice.
    """
    load = dict.fromkeys(have, 0)
    plan: dict[str, str] = {}
    for host in want:
        free = [seed for seed in have if load[seed] < each and seed not in (tried or {}).get(host, ())]
        if free:
            seed = min(free, key=lambda one: (load[one], have.index(one)))
            load[seed] += 1
            plan[host] = seed
    return plan


def rounds(have: int, want: int, each: int = 2) -> int:
    """How many rounds it takes when nothing goes wrong.

    Raises:
        ValueError: There is nobody to copy from.
    """
    if have < 1 or each < 1:
        raise ValueError("nobody has it")
    count = 0
    while want > 0:
        given = min(want, have * each)
        have, want, count = have + given, want - given, count + 1
    return count
