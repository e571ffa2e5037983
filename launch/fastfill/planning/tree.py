"""SGLang's radix cache, in pages: which prefix of a prompt is cached, what is locked, what is evicted first.

A key is ``bytes``, eight a page: a number that stands for the page's tokens, the same only for the same tokens.
"""

from __future__ import annotations

import heapq

WIDTH = 8


class Node:
    """A run of pages that was inserted as one, or what a split left of it."""

    __slots__ = ("children", "key", "last", "lock", "parent", "state")

    def __init__(self, key: bytes, parent: Node | None, last: int) -> None:
        self.key = key
        self.parent = parent
        self.children: dict[bytes, Node] = {}
        self.lock = 0
        self.last = last
        self.state = False


class Tree:
    """The cache of one scheduler.

    Args:
        hybrid: The model has linear-attention layers: a match reaches only to the last node at whose end a state was
            kept, and only an insertion's own end keeps one.

    Attributes:
        pages: Pages that the tree holds.
        evictable: Those of them that no request needs.
        reached: Pages of the last match's key that are there, whether or not a state lets them be used.
    """

    def __init__(self, *, hybrid: bool = False) -> None:
        self.root = Node(b"", None, 0)
        self.root.lock = 1
        self.hybrid = hybrid
        self.pages = 0
        self.evictable = 0
        self.reached = 0
        self._clock = 0
        self._heap: list[tuple[int, int, Node]] = []
        self._pushed = 0

    def match(self, key: bytes) -> tuple[int, Node]:
        """The cached beginning of a key: its length in pages, and the node at which it ends.

        A node that the match ends inside of is split there.
        """
        at, node, usable = self._walk(key)
        self.reached = at // WIDTH
        return usable if self.hybrid else (self.reached, node)

    def insert(self, key: bytes) -> tuple[int, Node]:
        """Add a key; returns how many of its pages were there before, and the node at which it ends."""
        at, node, _ = self._walk(key)
        if at < len(key):
            leaf = Node(key[at:], node, self._clock + 1)
            node.children[key[at : at + WIDTH]] = leaf
            pages = (len(key) - at) // WIDTH
            self.pages += pages
            self.evictable += pages
            self._offer(leaf)
            node = leaf
        node.state = True
        return at // WIDTH, node

    def _walk(self, key: bytes) -> tuple[int, Node, tuple[int, Node]]:
        """Follow a key as far as it is there, marking what it passes as used now; splits the node that it ends in.

        Returns:
            How many bytes of it are there, the node at their end, and the last node on the way, with its pages, whose
            state was kept (of a hybrid model).
        """
        self._clock += 2
        now = self._clock
        node, at, end = self.root, 0, len(key)
        usable = (0, self.root)
        while at < end:
            child = node.children.get(key[at : at + WIDTH])
            if child is None:
                break
            child.last = now
            size = len(child.key)
            if key.startswith(child.key, at):
                node = child
                at += size
                if self.hybrid and node.state:
                    usable = (at // WIDTH, node)
                continue
            shared = _shared(child.key, key, at)
            node = self._split(child, shared, now + 1)
            at += shared
            break
        return at, node, usable

    def lock(self, node: Node) -> None:
        """Keep a node and all above it from eviction."""
        while node.parent is not None:
            if node.lock == 0:
                self.evictable -= len(node.key) // WIDTH
            node.lock += 1
            node = node.parent

    def unlock(self, node: Node) -> None:
        """Undo one :meth:`lock`."""
        while node.parent is not None:
            node.lock -= 1
            if node.lock == 0:
                self.evictable += len(node.key) // WIDTH
                if not node.children:
                    self._offer(node)
            node = node.parent

    def evict(self, pages: int) -> int:
        """Drop the least recently used leaves, whole, until so many pages are free; returns how many are."""
        freed = 0
        while freed < pages and self._heap:
            last, _, node = heapq.heappop(self._heap)
            parent = node.parent
            if node.lock or node.children or parent is None:
                continue
            if node.last != last:
                self._offer(node)
                continue
            size = len(node.key) // WIDTH
            del parent.children[node.key[:WIDTH]]
            node.parent = None
            self.pages -= size
            self.evictable -= size
            freed += size
            if not parent.children and parent.lock == 0:
                self._offer(parent)
                # A leaf whose state is gone, or never was, is of no use to anybody.
                if self.hybrid and not parent.state and parent.parent is not None:
                    pages = max(pages, freed + len(parent.key) // WIDTH)
                    parent.last = -1
                    self._offer(parent)
        return freed

    def _offer(self, leaf: Node) -> None:
        self._pushed += 1
        heapq.heappush(self._heap, (leaf.last, self._pushed, leaf))

    def _split(self, child: Node, shared: int, now: int) -> Node:
        """Put a new node before a node that has only its first ``shared`` bytes in common with a key."""
        parent = child.parent
        assert parent is not None
        upper = Node(child.key[:shared], parent, now)
        upper.lock = child.lock
        parent.children[child.key[:WIDTH]] = upper
        child.key = child.key[shared:]
        child.parent = upper
        upper.children[child.key[:WIDTH]] = child
        return upper


def _shared(one: bytes, key: bytes, at: int) -> int:
    """Length of the common beginning of ``one`` and ``key[at:]``, in bytes, of whole pages."""
    low, high = 0, min(len(one), len(key) - at) // WIDTH
    while low < high:
        middle = (low + high + 1) // 2
        if one[: middle * WIDTH] == key[at : at + middle * WIDTH]:
            low = middle
        else:
            high = middle - 1
    return low * WIDTH
