"""How SGLang's releases differ in scheduling, and the settings of one server, as the model needs them."""

from __future__ import annotations

import re
from dataclasses import dataclass

CLIP_NEW_TOKENS = 4096
"""The scheduler estimates no more than this of a request's answer (0.5.16 schedule_policy.py:75)."""
FIRST_RATIO = 0.7
LEAST_RATIO_FACTOR = 0.14
RATIO_STEPS = 600
RETRACT_STEPS = 20


@dataclass(frozen=True, slots=True)
class Rules:
    """What one release does.

    Attributes:
        release: SGLang's version.
        prefix_fires: A batch in which a sequence has a prefix stays on the fast path (its KV is gathered).
        filters_every_step: Finished requests leave the running batch at every step, not only at a decode step.
        skips_finishing: A decode step leaves out requests whose answer ends with the step that is still running.
        stops_when_spent: Nobody is looked at once a resumed chunk or mixed decode rows have spent the pass's budget.
        fixed_length_whole: A running ignore_eos request is reserved whole, not by the new-token ratio.
        page_in_eos_branch: The ignore_eos branch reserves one page more.
        evicts_shortfall: Eviction stops at what is missing; before, at as much as was asked for.
        splits_at_prompt: A finished request leaves prompt and answer as two nodes, so that the answer goes first.
        opens_when_empty: "The batch is full" is forgotten once nothing runs.
        full_needs_company: A request that finds no memory marks the batch full only where others run or were admitted.
        touches_waiting: What waits keeps its prefix fresh in the cache, so that it is evicted last.
        exact_fill: On gfx950 without mamba states, a chunk is filled by tokens, not by whole pages.
        mixed_checks_memory: Decode rows join a prefill only if the KV pool has room for them.
    """

    release: str
    prefix_fires: bool
    filters_every_step: bool
    skips_finishing: bool
    stops_when_spent: bool
    fixed_length_whole: bool
    page_in_eos_branch: bool
    evicts_shortfall: bool
    splits_at_prompt: bool
    opens_when_empty: bool
    full_needs_company: bool
    touches_waiting: bool
    exact_fill: bool
    mixed_checks_memory: bool


def rules(release: str, *, gfx950: bool = True) -> Rules:
    """The rules of a release, as read in managers/ and mem_cache/ of the wheels 0.5.16 and 0.5.19 to 0.5.23.

    Args:
        release: SGLang's version, such as ``0.5.16``.
        gfx950: Whether the server runs on gfx950; the lab's does not, in the eyes of the scheduler.
    """
    digits = [int(part) for part in re.findall(r"\d+", release)[:3]]
    number = tuple(digits + [0] * (3 - len(digits)))
    return Rules(
        release=release,
        prefix_fires=number >= (0, 5, 19),
        evicts_shortfall=number >= (0, 5, 19),
        exact_fill=number >= (0, 5, 20) and gfx950,
        splits_at_prompt=number >= (0, 5, 21),
        page_in_eos_branch=number >= (0, 5, 21),
        skips_finishing=number >= (0, 5, 22),
        fixed_length_whole=number >= (0, 5, 22),
        full_needs_company=number >= (0, 5, 22),
        touches_waiting=number >= (0, 5, 22),
        mixed_checks_memory=number >= (0, 5, 22),
        filters_every_step=number >= (0, 5, 23),
        stops_when_spent=number >= (0, 5, 23),
        opens_when_empty=number >= (0, 5, 23),
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """One scheduler's settings: with DP attention, those of one rank.

    Attributes:
        chunk: Tokens a chunk; None when chunking is off.
        max_prefill: --max-prefill-tokens.
        page: --page-size, in tokens.
        radix: Whether prefixes are cached.
        mixed: --enable-mixed-chunk; counts with chunking only.
        overlap: Whether a batch is decided while the one before it still runs (SGLang's default).
        max_running: --max-running-requests.
        kv_tokens: Size of the KV pool, in tokens.
        hybrid: The model has linear-attention layers: a prefix is cached only where a state was kept.
        first_ratio: The new-token ratio at start; ``--schedule-conservativeness`` times 0.7.
    """

    chunk: int | None
    max_prefill: int
    page: int = 16
    radix: bool = False
    mixed: bool = False
    overlap: bool = True
    max_running: int = 256
    kv_tokens: int = 1 << 40
    hybrid: bool = False
    first_ratio: float = FIRST_RATIO

    @property
    def least_ratio(self) -> float:
        """The ratio below which it never decays."""
        return min(self.first_ratio * LEAST_RATIO_FACTOR, 1.0)

    @property
    def decay(self) -> float:
        """What the ratio loses at each decode step."""
        return (self.first_ratio - self.least_ratio) / RATIO_STEPS
