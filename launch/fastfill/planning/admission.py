"""Who is prefilled in one pass: the budgets of SGLang's ``PrefillAdder`` and the order in which they are asked.

Read in 0.5.16 managers/schedule_policy.py:438-1180 and 0.5.23 managers/schedule_policy.py:609-1690.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum

from fastfill.planning.pool import Pool
from fastfill.planning.request import Request
from fastfill.planning.rules import CLIP_NEW_TOKENS, Rules, Settings


class Answer(Enum):
    """What becomes of the next candidate."""

    GO_ON = 0
    NO_TOKEN = 1
    STOP = 2


class Pass:
    """The budgets of one pass.

    Args:
        rows: Decode rows that are mixed in; 0 unless chunks are mixed.
        reserved: What the running requests may still need, in tokens: an upper bound that costs nothing, and the exact
            sum, which is asked for only where the bound decides.

    Attributes:
        members: Admitted: request, prefix, extend, whether a part remains.
        split: The prompt that this pass splits.
        cut_short: Prompts that it splits and forgets: the rest of them is never prefilled. Seen on the real 0.5.16
            with mixed chunks and without the radix cache, where only some requests are ignore_eos: the first branch
            leaves less than a page of the budget, and the other takes it for the next prompt.
    """

    def __init__(
        self,
        rules: Rules,
        settings: Settings,
        pool: Pool,
        running: Iterable[Request],
        rows: int,
        reserved: tuple[float, Callable[[], float]],
        ratio: float,
        knows: Callable[[Request], int],
    ) -> None:
        self._rules = rules
        self._pool = pool
        self._tree = pool.tree
        self._page = settings.page
        self._exact_fill = rules.exact_fill and not (settings.hybrid and settings.radix)
        self.input = settings.max_prefill - rows
        self.chunk = None if settings.chunk is None else settings.chunk - rows
        self._offset = reserved[0] + rows
        self._exact: Callable[[], float] | None = reserved[1]
        self._bound = reserved[0]
        self._now = rows
        self._running = running
        self._ratio = ratio
        self._knows = knows
        self._states: list[tuple[float, int]] | None = None
        self.members: list[tuple[Request, int, int, bool]] = []
        self.split: Request | None = None
        self.cut_short = 0

    def _total(self) -> float:
        return self._pool.available() * self._page - self._offset

    def _refine(self) -> bool:
        """Replace the bound of what the running requests need by the exact sum; False if it is there already."""
        if self._exact is None:
            return False
        self._offset += self._exact() - self._bound
        self._exact = None
        return True

    def _fits(self, tokens: int) -> bool:
        return tokens < self._total() or (self._refine() and tokens < self._total())

    def _current(self) -> int:
        return self._pool.available() * self._page - self._now

    def verdict(self) -> Answer:
        """Whether another candidate may be asked."""
        if self._total() <= 0 and (not self._refine() or self._total() <= 0):
            return Answer.NO_TOKEN
        if self._current() <= 0:
            return Answer.NO_TOKEN
        if self.input <= 0 or (self.chunk is not None and self.chunk <= 0):
            return Answer.STOP
        return Answer.GO_ON

    def spent(self) -> bool:
        """Whether the budgets, memory aside, allow nobody else."""
        return self.verdict() is Answer.STOP

    def _ceil(self, tokens: int) -> int:
        return -(-tokens // self._page) * self._page

    def _charge(self, extend: int, answer: int) -> None:
        whole = self._ceil(extend)
        self._offset += whole + answer + self._page
        self._now += whole + self._page
        spent = extend if self._exact_fill else whole
        self.input -= spent
        if self.chunk is not None:
            self.chunk -= spent

    def _admit(self, request: Request, extend: int, answer: int, remains: bool) -> None:
        request.reach = request.prefix + extend
        self.members.append((request, request.prefix, extend, remains))
        self._charge(extend, answer)

    def resume(self, request: Request) -> bool:
        """Continue a split prompt; it is never refused. Returns whether a part still remains."""
        assert self.chunk is not None
        if self._total() < self.chunk:
            self._refine()
        room = min(self.chunk, int(self._total()))
        if room <= 0:
            room = self.chunk
        extend = min(request.fill - request.prefix, room)
        remains = request.fill - request.prefix > room
        self._admit(request, extend, 0 if remains else min(request.max_new, CLIP_NEW_TOKENS), remains)
        return remains

    def ask(self, request: Request) -> Answer:
        """Admit a waiting request, whole or in part, or not; its ``prefix`` and ``node`` are those of its match."""
        if request.ignore_eos and self._tree is None:
            return self._ask_fixed(request)
        wanted = request.fill - request.prefix
        answer = min(max(request.max_new - request.out, 0), CLIP_NEW_TOKENS)
        total = wanted + answer + self._page
        if not self._fits(total):
            return Answer.NO_TOKEN
        if self._tree is None or request.node is None:
            return self._place(request, wanted)
        self._tree.lock(request.node)
        if not self._fits(total):
            self._tree.unlock(request.node)
            return Answer.NO_TOKEN
        before = len(self.members)
        result = self._place(request, wanted)
        if len(self.members) == before:
            self._tree.unlock(request.node)
        return result

    def _place(self, request: Request, wanted: int) -> Answer:
        whole = self._ceil(wanted)
        if self.chunk is None and self.members and whole >= self.input:
            return Answer.STOP
        if self.chunk is None or (wanted if self._exact_fill else whole) <= self.chunk:
            self._admit(request, wanted, min(request.max_new, CLIP_NEW_TOKENS), False)
            return self.verdict()
        if self._exact_fill:
            extend = self.chunk
        else:
            extend = self.chunk // self._page * self._page
            extend = (request.prefix + extend) // self._page * self._page - request.prefix
        if self.chunk <= 0 or extend <= 0:
            return Answer.STOP
        self._split(request, extend)
        return self.verdict()

    def _split(self, request: Request, extend: int) -> None:
        """Admit the beginning of a prompt; only the last one that a pass splits is remembered as such."""
        if self.split is not None:
            at = next(at for at, member in enumerate(self.members) if member[0] is self.split)
            self.members[at] = (*self.members[at][:3], False)
            self.cut_short += 1
        self.split = request
        self._admit(request, extend, 0, True)

    def _ask_fixed(self, request: Request) -> Answer:
        """The branch of ignore_eos requests without a radix cache: the budget is looked at after the admission."""
        wanted = request.fill - request.prefix
        paged = self._ceil(wanted) + (self._page if self._rules.page_in_eos_branch else 0)
        if paged > self._current():
            return Answer.NO_TOKEN
        if paged > self._total() and (not self._refine() or paged > self._total()):
            return Answer.NO_TOKEN
        left = self._current() - (paged if self._rules.page_in_eos_branch else self._ceil(wanted))
        if not self._outlives(request, left):
            return Answer.NO_TOKEN
        if self.chunk is None or wanted <= self.chunk:
            self._admit(request, wanted, min(request.max_new, CLIP_NEW_TOKENS), False)
        elif self.chunk <= 0:
            return Answer.STOP
        else:
            self._split(request, self.chunk)
        return self.verdict()

    def _outlives(self, request: Request, left: int) -> bool:
        """Whether the pool lasts until enough of those that run have finished, each taken to answer in full."""
        if self._states is None:
            everyone = [request, *self._running, *(member[0] for member in self.members)]
            self._states = sorted((s for s in map(self._state, everyone) if s), key=lambda state: state[0])
        else:
            state = self._state(request)
            if state is not None:
                at = 0
                for at, (tokens, _) in enumerate(self._states):  # noqa: B007
                    if state[0] <= tokens:
                        break
                self._states.insert(at, state)
        states = self._states
        if not states or left - states[-1][0] * len(states) > len(states):
            return True
        freed = 0
        for index, (tokens, occupied) in enumerate(states):
            count = len(states) - index
            if left + freed - tokens * count <= count:
                return False
            freed += occupied
        return True

    def _state(self, request: Request) -> tuple[float, int] | None:
        known = self._knows(request)
        tokens = request.max_new * (1.0 if request.ignore_eos else self._ratio) - known
        return (tokens, request.n_in + known) if tokens > 0 else None
