"""A trace in compact arrays: what the requests were, what the file did not tell, and what was repaired."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

from fastfill.planning.request import Request

UNKNOWN = -1


@dataclass(slots=True)
class Trace:
    """Requests in the order of their arrival. Lengths are in tokens, times in seconds after the first.

    Attributes:
        format: What kind of file it was.
        lacks: What it does not tell, in words; each needs an assumption.
        repairs: What was changed to make it usable, in words, with the first line concerned.
        doubts: What looks wrong and was taken as it stands, in words.
        block: Tokens that one prefix hash stands for; 0 without hashes.
        clients: How many clients send, if it is known and the times are not; 0 otherwise.
    """

    format: str
    lacks: list[str] = field(default_factory=list)
    repairs: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    block: int = 0
    clients: int = 0
    arrival: array[float] = field(default_factory=lambda: array("d"))
    n_in: array[int] = field(default_factory=lambda: array("i"))
    n_out: array[int] = field(default_factory=lambda: array("i"))
    max_new: array[int] = field(default_factory=lambda: array("i"))
    ignore_eos: array[int] = field(default_factory=lambda: array("b"))
    hashes: array[int] = field(default_factory=lambda: array("q"))
    offsets: array[int] = field(default_factory=lambda: array("q", [0]))

    def __len__(self) -> int:
        return len(self.n_in)

    @property
    def timed(self) -> bool:
        """Whether the requests' arrival times are known."""
        return len(self.arrival) > 0

    def add(self, at: float, n_in: int, n_out: int, max_new: int = UNKNOWN, ignore_eos: int = UNKNOWN) -> None:
        """One more request; ``at`` is not kept while it is NaN."""
        if at == at:
            self.arrival.append(at)
        self.n_in.append(n_in)
        self.n_out.append(n_out)
        self.max_new.append(max_new)
        self.ignore_eos.append(ignore_eos)

    def add_hashes(self, hashes: list[int]) -> None:
        """The last request's prefix hashes, one a block."""
        self.hashes.extend(hashes)
        self.offsets.append(len(self.hashes))

    def in_order(self) -> list[int]:
        """The requests' places, by arrival; equal times keep the file's order."""
        return sorted(range(len(self)), key=self.arrival.__getitem__)

    def longest(self) -> int:
        """The longest prompt with its answer."""
        return max((a + b for a, b in zip(self.n_in, self.n_out, strict=True)), default=0)

    def requests(
        self, *, max_new: int, ignore_eos: bool, page: int, keyed: bool, order: list[int] | None = None
    ) -> Iterator[Request]:
        """The requests, made one at a time.

        Args:
            max_new: What a client asked for at most where the trace does not say; 0: what it got.
            ignore_eos: Where the trace does not say.
            page: Tokens a page.
            keyed: With the keys of their pages, for the radix cache.
            order: From :meth:`in_order`; None: as they are.
        """
        first = self.arrival[order[0] if order else 0] if self.timed and len(self) else 0.0
        for number in order if order is not None else range(len(self)):
            n_out = self.n_out[number]
            asked = self.max_new[number]
            said = self.ignore_eos[number]
            yield Request(
                number,
                self.arrival[number] - first if self.timed else 0.0,
                self.n_in[number],
                n_out,
                max(n_out, asked if asked != UNKNOWN else max_new or n_out),
                bool(said) if said != UNKNOWN else ignore_eos,
                key=self.key(number, page) if keyed else b"",
            )

    def key(self, number: int, page: int) -> bytes:
        """One number a page of the prompt, the same for the same beginning only; the hashes tell blocks apart."""
        pages = self.n_in[number] // page
        each = self.block // page
        found = array("q")
        for block in self.hashes[self.offsets[number] : self.offsets[number + 1]]:
            found.extend(range(block * each, block * each + min(each, pages - len(found))))
        if len(found) < pages:
            own = -((number + 1) << 40)
            found.extend(range(own, own + pages - len(found)))
        return found.tobytes()
