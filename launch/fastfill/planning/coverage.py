"""Which batches take the fast path, and by which condition the others do not: the server's own vocabulary."""

from __future__ import annotations

from dataclasses import dataclass, field

from fastfill.planning.request import Batch
from fastfill.planning.rules import Rules
from sglang_fastfill.conditions import ADDRESS_LIMIT, BYTES_PER_HEAD_ROW


@dataclass(frozen=True, slots=True)
class Gate:
    """What decides about a batch.

    Attributes:
        deployment: The deployment condition that stops the path for every batch; "" if none does.
        prefix_fires: A sequence with a prefix does not stop it.
        most_tokens: Packed tokens at which the kernel's offsets overflow.
    """

    deployment: str
    prefix_fires: bool
    most_tokens: int

    def reason(self, batch: Batch, tokens: int) -> str:
        """The condition that keeps a prefill batch off the path, the first in the vocabulary's order; "" for none."""
        if self.deployment:
            return self.deployment
        if not self.prefix_fires:
            if batch.kind == "mixed":
                return "prefix_mixed"
            if batch.resumed:
                return "prefix_chunk"
            if any(member[1] for member in batch.members):
                return "prefix_radix"
        return "batch_too_large" if tokens >= self.most_tokens else ""


def gate(rules: Rules, *, path: bool, q_heads: int | None, stopped_by: str = "") -> Gate:
    """The gate of a candidate.

    Args:
        path: Whether the flag is set.
        q_heads: Query heads of one rank; None if unknown, and then no batch is too large.
        stopped_by: A deployment condition that holds whatever the flags are.
    """
    limit = -(-ADDRESS_LIMIT // (q_heads * BYTES_PER_HEAD_ROW)) if q_heads else 1 << 62
    return Gate(stopped_by or ("" if path else "flag_off"), rules.prefix_fires, limit)


@dataclass(slots=True)
class Coverage:
    """Tokens and attention work by reason; "" is the fast path."""

    tokens: dict[str, int] = field(default_factory=dict)
    work: dict[str, float] = field(default_factory=dict)
    batches: dict[str, int] = field(default_factory=dict)

    def add(self, reason: str, tokens: int, work: float) -> None:
        """Count one prefill batch."""
        self.tokens[reason] = self.tokens.get(reason, 0) + tokens
        self.work[reason] = self.work.get(reason, 0.0) + work
        self.batches[reason] = self.batches.get(reason, 0) + 1

    @property
    def of_tokens(self) -> float:
        """Share of the prefilled tokens on the fast path, 0 to 1."""
        return self.tokens.get("", 0) / max(sum(self.tokens.values()), 1)

    @property
    def of_work(self) -> float:
        """Share of the attention work on the fast path, 0 to 1."""
        return self.work.get("", 0.0) / (sum(self.work.values()) or 1.0)

    def reasons(self) -> dict[str, float]:
        """Share of the attention work that each condition keeps off the path."""
        total = sum(self.work.values()) or 1.0
        return {reason: work / total for reason, work in sorted(self.work.items()) if reason}
