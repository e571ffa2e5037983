"""A request as the scheduler sees it, and the batches that it makes."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Literal

from fastfill.planning.tree import WIDTH, Node

_ANSWERS = -(1 << 61)
Kind = Literal["extend", "mixed", "decode"]


class Request:
    """One request. Lengths are in tokens.

    Attributes:
        number: Its place in the trace.
        arrival: When it arrives, in seconds.
        n_in: The prompt.
        n_out: What it really answers.
        max_new: What the client asked for at most: admission reads this, not ``n_out``.
        ignore_eos: The client's; with the radix cache off such requests take another branch of admission.
        key: The prompt's whole pages, ``WIDTH`` bytes each; empty without the radix cache.
        full_key: The same of prompt and answer, if a log told it; else the answer's pages are its own.
        out: Tokens answered, as far as the scheduler knows, before ``born``.
        born: The decode step at which it joined the running batch.
        base: ``committed`` minus the decode steps done; ``committed`` while it does not decode.
        protected: The beginning of its KV that the tree holds for it.
        prefix: Tokens that its next or current prefill finds.
        reach: Where its current prefill ends.
        node: The tree's node that it locks.
        holds: Whether it has KV of its own.
        decodes: Whether the pool counts it with the running batch.
        done: Whether it has finished, though a batch may still name it.
        retracted: Whether it lost its KV and waits again.
        ticket: Its entry among the expected ends; 0 for none.
        branch: Tokens of it that the tree holds, though no state lets them be used; 0 if its prefix is all.
        found: Prompt tokens that the cache had when it was first admitted.
        first: When its first token came, in seconds; negative before.
    """

    __slots__ = (
        "arrival", "base", "born", "branch", "decodes", "done", "first", "found", "full_key", "holds", "ignore_eos",
        "key", "max_new", "n_in", "n_out", "node", "number", "out", "prefix", "protected", "reach", "retracted",
        "ticket",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        arrival: float,
        n_in: int,
        n_out: int,
        max_new: int | None = None,
        ignore_eos: bool = False,
        key: bytes = b"",
        full_key: bytes = b"",
    ) -> None:
        self.number = number
        self.arrival = arrival
        self.n_in = n_in
        self.n_out = n_out
        self.max_new = n_out if max_new is None else max_new
        self.ignore_eos = ignore_eos
        self.key = key
        self.full_key = full_key
        self.out = 0
        self.born = 0
        self.base = 0
        self.protected = 0
        self.prefix = 0
        self.reach = 0
        self.node: Node | None = None
        self.holds = False
        self.decodes = False
        self.done = False
        self.retracted = False
        self.ticket = 0
        self.branch = 0
        self.found = 0
        self.first = -1.0

    @property
    def fill(self) -> int:
        """Tokens that a prefill must cover: the prompt, and after a retraction what was answered."""
        return self.n_in + self.out

    def pages(self, tokens: int, page: int) -> bytes:
        """The key of its first ``tokens``, whole pages only."""
        wanted = tokens // page * WIDTH
        if wanted <= len(self.key):
            return self.key[:wanted]
        if self.full_key:
            return self.full_key[:wanted]
        start = len(self.key) // WIDTH
        # Below every number that a trace's own hashes can give.
        own = _ANSWERS - (self.number << 24)
        return self.key + array("q", range(own + start, own + wanted // WIDTH)).tobytes()


@dataclass(slots=True)
class Batch:
    """One pass of the model.

    Attributes:
        kind: ``mixed`` is an extend with the running requests' decode rows in it.
        members: The prefilled sequences: request, prefix, extend, whether a part of the prompt remains.
        resumed: Whether the first of them is a later part of a split prompt.
        rows: Decode rows.
        context: For ``decode``: tokens in the cache of all rows together, their new ones included.
        mixed: For ``mixed``: each row's request and prefix.
    """

    kind: Kind
    members: list[tuple[Request, int, int, bool]] = field(default_factory=list)
    resumed: bool = False
    rows: int = 0
    context: int = 0
    mixed: list[tuple[Request, int]] = field(default_factory=list)
