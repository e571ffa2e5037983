"""Attention work: what a prefill costs, and what share of it took the fast path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sglang_fastfill.ledger import Call

FAST = ("asm", 256)


def attention_work(prefixes: Sequence[int], extends: Sequence[int]) -> float:
    """Sum over sequences of ((p+e)^2 - p^2)/2, per head and layer: the query-key pairs of a causal prefill."""
    return sum(((p + e) ** 2 - p**2) / 2 for p, e in zip(prefixes, extends, strict=True))


class Share(NamedTuple):
    """One kernel's share of a pass.

    Attributes:
        kernel: Kernel label.
        reason: Condition id, empty when the fast path fired.
        calls: Layer calls.
        fraction: Of the pass's layer calls, 0 to 1.
    """

    kernel: str
    reason: str
    calls: int
    fraction: float


def shares(calls: dict[Call, int], reasons: dict[str, int], unexplained: str) -> list[Share]:
    """Split a pass's layer calls by kernel and reason.

    Args:
        calls: Attention calls by function, kernel and head dim.
        reasons: The gate's reasons, per layer call; empty when there is no gate.
        unexplained: Reason of calls that missed the fast path when the gate gave none.
    """
    total = sum(calls.values())
    if not total:
        return []
    fired = sum(n for (_, kernel, dim), n in calls.items() if (kernel, dim) == FAST)
    rest: dict[str, int] = {}
    for (_, kernel, dim), n in calls.items():
        if (kernel, dim) != FAST:
            rest[kernel] = rest.get(kernel, 0) + n
    result = [Share("asm", "", fired, fired / total)] if fired else []
    explained = reasons or {unexplained: 1}
    weight = sum(explained.values())
    for kernel, n in rest.items():
        for reason, count in explained.items():
            portion = n * count / weight
            result.append(Share(kernel, reason, round(portion), portion / total))
    return result
