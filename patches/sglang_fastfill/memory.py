"""What outlives a forward pass: where prompts had got to, the kill switch, and the count of saturated elements."""

from __future__ import annotations

import os
from collections import deque
from typing import Any

import torch

from sglang_fastfill import state

_PASSES_REMEMBERED = 4


class Memory:
    """What the path remembers between passes of one attention backend (target and draft have their own).

    Attributes:
        ends: For the last few passes: where each request's prompt had got to, in tokens.
        saturated: (1,) int64 on the device: elements of k and v beyond the fp8 range so far.
    """

    __slots__ = ("_copied", "_passes", "allow_forced", "ends", "saturated", "switch")

    def __init__(self, device: Any) -> None:
        self._passes: deque[dict[str, int]] = deque(maxlen=_PASSES_REMEMBERED)
        self.ends: dict[str, int] = {}
        self.allow_forced = state.truthy(os.environ.get(state.ALLOW_FORCED_FALLBACK))
        self.switch = state.Switch(state.folder())
        self.saturated = torch.zeros(1, dtype=torch.int64, device=device)
        self._copied = torch.zeros(1, dtype=torch.int64, pin_memory=self.saturated.is_cuda)

    def saturated_so_far(self) -> int:
        """The count as of the call before this one: the copy to the host is asked for and not waited for."""
        known = int(self._copied)
        self._copied.copy_(self.saturated, non_blocking=True)
        return known

    def remember(self, rids: list[str], prefixes: list[int], extends: list[int]) -> None:
        """Note where each sequence of this pass ends."""
        self._passes.append({r: p + e for r, p, e in zip(rids, prefixes, extends, strict=False)})
        self.ends = {rid: end for forward_pass in self._passes for rid, end in forward_pass.items()}
