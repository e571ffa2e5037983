"""SGLang's scheduler, one step at a time: which batch it makes from what waits, runs and is cached.

Read in 0.5.16 managers/scheduler.py (event loops 1520-1620, get_next_batch_to_run 2687-2822, prefill 2850-3110, decode
3140-3228), managers/scheduler_components/batch_result_processor.py, mem_cache/radix_cache.py, mem_cache/allocation.py;
what 0.5.23 does otherwise is in :mod:`fastfill.planning.rules`. First come, first served, which is SGLang's default.
"""

from __future__ import annotations

import heapq
from collections import deque
from itertools import islice

from fastfill.planning.admission import Answer, Pass
from fastfill.planning.hybrid import ended, tracked
from fastfill.planning.pool import Pool
from fastfill.planning.request import Batch, Request
from fastfill.planning.rules import CLIP_NEW_TOKENS, RETRACT_STEPS, Rules, Settings
from fastfill.planning.tree import Tree

_TOUCH_EVERY, _TOUCHED = 32, 128


class Scheduler:
    """One scheduler: of a server, or of one rank with DP attention.

    Attributes:
        waiting: The queue.
        running: Requests that decode, in SGLang's order.
        chunked: The prompt that is split at the moment.
        last: The batch of the last step; with overlap its result is not known yet.
        finished: Requests whose end the last steps noticed, in that order; the caller clears it.
        answered: Requests whose first token the last steps noticed; the caller clears it.
        aborted: Requests that no memory was left for even alone.
        retractions: How often a request lost its KV and waited again.
        cut_short: Prompts of which only a part was prefilled (see ``Pass``).
    """

    def __init__(self, rules: Rules, settings: Settings) -> None:
        self.rules = rules
        self.settings = settings
        self.tree = Tree(hybrid=settings.hybrid) if settings.radix else None
        self.pool = Pool(settings.kv_tokens, settings.page, self.tree)
        self.waiting: deque[Request] = deque()
        self.running: dict[Request, None] = {}
        self.chunked: Request | None = None
        self.last: Batch | None = None
        self.finished: list[Request] = []
        self.answered: list[Request] = []
        self.aborted: list[Request] = []
        self.retractions = 0
        self.cut_short = 0
        self._full = False
        self._known = 0
        self._slots = settings.max_running
        self._ratio = settings.first_ratio
        self._decay, self._least = settings.decay, settings.least_ratio
        self._bound = 0
        self._gone = 0
        self._ends: list[tuple[int, int, Request]] = []
        self._tickets = 0
        self._touches = 0

    def arrive(self, request: Request) -> None:
        """A request has come."""
        self.waiting.append(request)

    @property
    def idle(self) -> bool:
        """Whether nothing waits, runs, or is still to be noticed."""
        return not (self.waiting or self.running or self.chunked or self.last)

    def step(self) -> Batch | None:
        """Decide the next batch, and notice what the one before it did (with overlap; else what this one did)."""
        last = self.last
        batch = self._decide()
        if self.settings.overlap:
            if last is not None:
                self._notice(last)
        elif batch is not None:
            self._notice(batch)
        self.last = batch
        if batch is None and last is None and not (self.waiting or self.running or self.chunked):
            self._ratio = self.settings.first_ratio
        return batch

    def steps_alike(self) -> int:
        """How many of the next steps will decode the very same requests if nobody arrives: they can be skipped."""
        last, ends = self.last, self._ends
        if last is None or last.kind != "decode" or self.chunked is not None or self._gone:
            return 0
        if self.waiting and not self._full:
            return 0
        while ends and ends[0][2].ticket != ends[0][1]:
            heapq.heappop(ends)
        if not ends:
            return 0
        steps = max(ends[0][0] - self._known - 1, 0)
        pool = self.pool
        room = pool.free() - pool.running
        if pool.pages_after(steps) <= room:
            return steps
        low, high = 0, steps
        while low < high:
            middle = (low + high + 1) // 2
            if pool.pages_after(middle) <= room:
                low = middle
            else:
                high = middle - 1
        return low

    def skip(self, steps: int) -> None:
        """Do so many of those steps at once."""
        self.pool.advance(steps)
        self._known += steps
        self._ratio = max(self._ratio - steps * self._decay, self._least)

    # Deciding

    def _decide(self) -> Batch | None:
        chunked, last = self.chunked, self.last
        if chunked is not None and chunked.reach > chunked.prefix:
            self._cache(chunked)
            chunked.prefix = chunked.reach
        if last is not None and last.kind != "decode":
            self._merge(last)
        if self.rules.filters_every_step and self._drop_finished():
            self._full = False
        return self._prefill() or self._decode()

    def _merge(self, last: Batch) -> None:
        """What was prefilled, and what decoded with it, runs from now on."""
        staying = [m[0] for m in last.members if not (m[3] or m[0].done)]
        rows = [request for request, _ in last.mixed if not request.done]
        if len(staying) + len(rows) < len(last.members) + len(last.mixed):
            self._full = False
        steps = self.pool.steps
        for request in staying:
            self._enter(request)
            self.pool.join(request)
            request.born = steps
            ahead = request.n_out - request.out - (1 if self.settings.overlap else 0)
            if ahead > 0:
                self._tickets += 1
                request.ticket = self._tickets
                heapq.heappush(self._ends, (steps + ahead, self._tickets, request))
        for request in rows:
            self._enter(request)

    def _enter(self, request: Request) -> None:
        self.running[request] = None
        self._bound += min(request.max_new, CLIP_NEW_TOKENS)

    def _exit(self, request: Request) -> None:
        del self.running[request]
        self._bound -= min(request.max_new, CLIP_NEW_TOKENS)

    def _drop_finished(self) -> bool:
        if not self._gone:
            return False
        self._gone = 0
        for request in [r for r in self.running if r.done]:
            self._exit(request)
        return True

    def _knows(self, request: Request) -> int:
        """Tokens of the answer that the scheduler has seen."""
        return request.out + (max(self._known - request.born, 0) if request.decodes else 0)

    def _reserved(self) -> float:
        """What the running requests may still need, in tokens."""
        whole, ratio = self.rules.fixed_length_whole, self._ratio
        return sum(
            min(r.max_new - self._knows(r), CLIP_NEW_TOKENS) * (1.0 if whole and r.ignore_eos else ratio)
            for r in self.running
        )

    def _prefill(self) -> Batch | None:
        rules, settings = self.rules, self.settings
        if rules.opens_when_empty and not self.running:
            self._full = False
        resumed = self.chunked
        if resumed is None and (self._full or not self.waiting):
            return None
        running = len(self.running)
        if resumed is None and (settings.max_running <= running or self._slots <= 0):
            self._full = True
            return None
        if rules.touches_waiting and self.tree is not None:
            self._touch_waiting(self.tree)
        mixed = settings.mixed and settings.chunk is not None
        bound = float(self._bound) if rules.fixed_length_whole else self._bound * self._ratio
        budget = Pass(
            rules,
            settings,
            self.pool,
            self.running,
            running if mixed else 0,
            (bound, self._reserved),
            self._ratio,
            self._knows,
        )
        if resumed is not None and not budget.resume(resumed):
            self.chunked = None
        self._choose(budget, running, resumed is not None)
        if not budget.members:
            return None
        if budget.split is not None:
            self.chunked = budget.split
            self.cut_short += budget.cut_short
        batch = Batch("extend", budget.members, resumed is not None)
        self._allocate(batch)
        if mixed and self.running:
            self._mix(batch)
        return batch

    def _choose(self, budget: Pass, running: int, resumed: bool) -> None:
        """Ask the waiting requests in order, until one is refused."""
        waiting, tree, members, page = self.waiting, self.tree, budget.members, self.settings.page
        held = 1 if resumed and self.rules.filters_every_step else 0
        places = min(self.settings.max_running - running, self._slots + held)
        while waiting:
            if self.rules.stops_when_spent and budget.spent():
                return
            if len(members) >= places:
                self._full = True
            if self._full:
                return
            request = waiting[0]
            if tree is not None:
                pages, request.node = tree.match(request.pages(request.fill - 1, page))
                request.prefix = request.protected = pages * page
                request.branch = tree.reached * page if tree.reached > pages else 0
            before = len(members)
            answer = budget.ask(request)
            if len(members) > before:
                if request.out == 0:
                    request.found = request.prefix
                request.retracted = False
                waiting.popleft()
            elif tree is not None:
                request.node = None
            if answer is not Answer.GO_ON:
                if answer is Answer.NO_TOKEN:
                    self._full = not self.rules.full_needs_company or bool(members) or bool(self.running)
                return

    def _touch_waiting(self, tree: Tree) -> None:
        """Newer releases keep what waits from eviction: at every 32nd pass, the head of the queue last."""
        if self._touches % _TOUCH_EVERY == 0:
            for request in reversed(list(islice(self.waiting, _TOUCHED))):
                tree.match(request.pages(request.fill, self.settings.page))
        self._touches += 1

    def _allocate(self, batch: Batch) -> None:
        page = self.settings.page
        wanted = sum(member[2] for member in batch.members)
        self._make_room(wanted + (len(batch.members) * page if page > 1 else 0))
        for request, prefix, extend, _ in batch.members:
            if not request.holds:
                self._slots -= 1
            self.pool.take(request, prefix + extend)
        self.pool.note()

    def _make_room(self, tokens: int) -> None:
        self.pool.make_room(tokens, shortfall=self.rules.evicts_shortfall)

    def _mix(self, batch: Batch) -> None:
        """The running requests decode one token in the same pass."""
        self._drop_finished()
        if self.rules.skips_finishing and self._leave_out_ending():
            self._full = False
        if not self.running or (self.rules.mixed_checks_memory and not self._decode_fits()):
            return
        late = 0 if self.settings.overlap else -1
        batch.kind = "mixed"
        batch.mixed = [(r, r.n_in + self._knows(r) + late) for r in self.running]
        self._launch(batch)
        self.running.clear()
        self._bound = 0

    def _launch(self, batch: Batch) -> None:
        """One decode step of everyone who runs."""
        pool = self.pool
        self._make_room(pool.running * self.settings.page)
        pool.advance(1)
        batch.rows, batch.context = pool.running, pool.tokens

    def _leave_out_ending(self) -> bool:
        """Those whose last token is being computed need no further step."""
        if not self.settings.overlap or self.last is None:
            return False
        ending = [m[0] for m in self.last.members if m[0] in self.running and m[0].out + 1 >= m[0].max_new]
        if self.last.kind != "extend":
            kept = []
            while self._ends and self._ends[0][0] <= self._known + 1:
                entry = heapq.heappop(self._ends)
                if entry[2].ticket == entry[1]:
                    kept.append(entry)
            for entry in kept:
                heapq.heappush(self._ends, entry)
            ending += [r for _, _, r in kept if r in self.running and r.n_out >= r.max_new]
        for request in ending:
            self.pool.leave(request)
            self._exit(request)
        return bool(ending)

    def _decode_fits(self) -> bool:
        pool = self.pool
        wanted = pool.next_pages()
        if pool.free() >= wanted:
            return True
        self._make_room(wanted * self.settings.page)
        return pool.free() >= wanted

    def _decode(self) -> Batch | None:
        if not self.running:
            return None
        if self._drop_finished():
            self._full = False
        left_out = self.rules.skips_finishing and self._leave_out_ending()
        if not self.running:
            self._full = False
            return None
        fits = self._decode_fits()
        if not fits and left_out:
            self._full = False
            return None
        if fits:
            self._ratio = max(self._ratio - self._decay, self._least)
        else:
            self._retract()
        if left_out or not fits:
            self._full = False
        if not self.running:
            return None
        batch = Batch("decode")
        self._launch(batch)
        return batch

    def _retract(self) -> None:
        """Take the KV of those who have answered least, until the next step fits; they wait again."""
        order = sorted(self.running, key=lambda r: (self._knows(r), -r.n_in), reverse=True)
        first = True
        while first or not self._decode_fits():
            if len(order) == 1:
                break
            first = False
            request = order.pop()
            self._lose(request, len(order))
            self.waiting.append(request)
            self.retractions += 1
        if len(order) == 1 and not self._decode_fits():
            request = order.pop()
            self._lose(request, 0)
            request.done = True
            self.aborted.append(request)
        known = sum(map(self._knows, order))
        asked = sum(request.max_new for request in order)
        self._ratio = min(1.0, (known + RETRACT_STEPS * len(order)) / (asked + 1))

    def _lose(self, request: Request, others: int) -> None:
        request.out = self._knows(request)
        request.ticket = 0
        request.retracted = True
        self._exit(request)
        self.pool.give_back(request)
        self._slots += 1
        self._make_room(others * RETRACT_STEPS)

    # Noticing

    def _notice(self, batch: Batch) -> None:
        """The result of a batch: tokens, ends, and what is cached now."""
        for request, _, _, remains in batch.members:
            if remains or request.retracted or request.done:
                continue
            if request.out == 0:
                self.answered.append(request)
            request.out += 1
            if request.out >= request.n_out:
                self._finish(request)
            else:
                self._cache(request)
        if batch.kind == "extend":
            return
        self._known += 1
        ends = self._ends
        while ends and ends[0][0] <= self._known:
            _, ticket, request = heapq.heappop(ends)
            if request.ticket == ticket:
                self._finish(request)

    def _cache(self, request: Request) -> None:
        """Put into the tree what a pass has computed of a prompt."""
        tokens = tracked(request, self.settings.page) if self.settings.hybrid else request.reach
        if tokens:
            self.pool.cache(request, tokens)

    def _finish(self, request: Request) -> None:
        request.out = request.n_out
        request.ticket = 0
        request.done = True
        if request in self.running:
            self._gone += 1
        committed = self.pool.committed(request)
        hybrid, page = self.settings.hybrid, self.settings.page
        kept = ended(request, committed, page) if hybrid else committed
        self.pool.give_back(request, insert=kept, split=self.rules.splits_at_prompt and not hybrid)
        self._slots += 1
        self.finished.append(request)
