"""The KV pool of one scheduler, counted in pages; the running batch is counted as a whole, not request by request."""

from __future__ import annotations

from fastfill.planning.request import Request
from fastfill.planning.tree import Tree


class Pool:
    """How full the pool is.

    Attributes:
        page: Tokens a page.
        capacity: Pages that there are.
        steps: Decode steps launched so far.
        running: Requests that decode.
        peak: The most pages in use at once, without what could be evicted.
    """

    def __init__(self, tokens: int, page: int, tree: Tree | None) -> None:
        self.page = page
        self.capacity = tokens // page
        self.tree = tree
        self.steps = 0
        self.running = 0
        self.peak = 0
        self.tokens = 0
        self._held = 0
        self._at = [0] * page

    def free(self) -> int:
        """Free pages."""
        return self.capacity - self._held - (self.tree.pages if self.tree is not None else 0)

    def available(self) -> int:
        """Free pages, and those that could be evicted."""
        if self.tree is None:
            return self.capacity - self._held
        return self.capacity - self._held - self.tree.pages + self.tree.evictable

    def take(self, request: Request, tokens: int) -> None:
        """Give a request that does not decode its KV up to ``tokens``."""
        page = self.page
        if not request.holds:
            request.holds = True
            self._held += -(-tokens // page) - request.protected // page
        else:
            self._held += -(-tokens // page) - -(-request.base // page)
        request.base = tokens

    def join(self, request: Request) -> None:
        """Count a request with the running batch from now on."""
        request.decodes = True
        self.tokens += request.base
        request.base -= self.steps
        self._at[request.base % self.page] += 1
        self.running += 1

    def leave(self, request: Request) -> None:
        """The inverse of :meth:`join`; its ``base`` is its committed KV again."""
        request.decodes = False
        self._at[request.base % self.page] -= 1
        request.base += self.steps
        self.tokens -= request.base
        self.running -= 1

    def committed(self, request: Request) -> int:
        """Tokens of a request in the cache."""
        return request.base + self.steps if request.decodes else request.base

    def cache(self, request: Request, tokens: int) -> None:
        """Put the request's first ``tokens`` into the tree, which then holds them for it; duplicates are freed."""
        if self.tree is None:
            return
        key = request.pages(tokens, self.page)
        _, node = self.tree.insert(key)
        if request.node is not None:
            self.tree.unlock(request.node)
        self.tree.lock(node)
        request.node = node
        whole = tokens // self.page * self.page
        self._held -= (whole - request.protected) // self.page
        request.protected = whole

    def give_back(self, request: Request, *, insert: int = 0, split: bool = False) -> None:
        """A request leaves the pool.

        Args:
            insert: The tree keeps so many tokens of what it computed.
            split: The tree keeps prompt and answer apart.
        """
        if request.decodes:
            self.leave(request)
        if self.tree is not None:
            if insert:
                key = request.pages(insert, self.page)
                self.tree.insert(key)
                prompt = request.key
                if split and 0 < len(prompt) < len(key):
                    self.tree.insert(prompt)
            if request.node is not None:
                self.tree.unlock(request.node)
                request.node = None
        self._held -= -(-request.base // self.page) - request.protected // self.page
        request.holds = False
        request.base = request.protected = request.prefix = request.reach = 0

    def make_room(self, tokens: int, *, shortfall: bool) -> None:
        """Evict if fewer than ``tokens`` are free: so many, or only as many as are missing."""
        if self.tree is None:
            return
        free = self.free() * self.page
        if free < tokens:
            self.tree.evict(-(-(tokens - free if shortfall else tokens) // self.page))

    def next_pages(self) -> int:
        """Pages that the next decode step takes."""
        return self._at[-self.steps % self.page]

    def pages_after(self, steps: int) -> int:
        """Pages that the next ``steps`` decode steps take together."""
        page = self.page
        whole, rest = divmod(steps, page)
        more = self.running * whole
        for step in range(self.steps, self.steps + rest):
            more += self._at[-step % page]
        return more

    def advance(self, steps: int) -> None:
        """Launch decode steps."""
        self._held += self.pages_after(steps) if steps > 1 else self.next_pages()
        self.steps += steps
        self.tokens += self.running * steps
        self.note()

    def note(self) -> None:
        """Remember the peak."""
        used = self._held + (self.tree.pages - self.tree.evictable if self.tree is not None else 0)
        if used > self.peak:
            self.peak = used
