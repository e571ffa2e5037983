"""Where a model with linear-attention layers leaves a state in the radix cache: a prefix is found only up to one.

Read in 0.5.16 managers/schedule_batch.py:2421-2506, managers/scheduler_components/batch_result_processor.py:955-985 and
mem_cache/mamba_radix_cache.py (the strategy with an extra buffer, which ROCm defaults to). How many states the pool
holds is not modelled: none is evicted for want of a slot.
"""

from __future__ import annotations

from fastfill.planning.request import Request

KERNEL_CHUNK = 64
DECODE_INTERVAL = 256


def tracked(request: Request, page: int) -> int:
    """Tokens up to which the present pass leaves a state: its last whole kernel chunk, or where it branched off.

    Returns:
        0 where it leaves none: the pass is shorter than a kernel chunk.
    """
    chunk = max(KERNEL_CHUNK, page)
    prefix, extend = request.prefix, request.reach - request.prefix
    if extend < chunk:
        return 0
    branch = request.branch // chunk * chunk
    if prefix < branch < request.reach and (branch - prefix) % chunk == 0:
        return branch
    return prefix + extend // chunk * chunk


def ended(request: Request, committed: int, page: int) -> int:
    """Tokens up to which a finished request leaves a state: the last interval that its answer crossed; 0 for none."""
    if request.n_out == 1:
        return tracked(request, page)
    last = committed // DECODE_INTERVAL * DECODE_INTERVAL
    return last if last > request.reach else 0
