"""A stand-in for sgl_kernel's CPU build, without AMX: README.md beside it says which file of SGLang needs what.

Without ``torch.ops.sgl_kernel.convert_weight_packed`` SGLang takes its torch-native paths for everything else.
"""

from __future__ import annotations

import ctypes
from typing import Any, NoReturn

import torch

from . import gdn

gdn.register()


def assign_req_to_token_pool_cpu(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    start_offset: torch.Tensor,
    end_offset: torch.Tensor,
    out_cache_loc: torch.Tensor,
    pool_len: int,
) -> None:
    """Write each request's new cache slots into its row of the table (srt/mem_cache/allocation.py)."""
    taken = 0
    for row, start, end in zip(req_pool_indices.tolist(), start_offset.tolist(), end_offset.tolist(), strict=True):
        count = end - start
        req_to_token[row, start:end] = out_cache_loc[taken : taken + count].to(req_to_token.dtype)
        taken += count


def assign_extend_cache_locs_cpu(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    start_offset: torch.Tensor,
    end_offset: torch.Tensor,
    out_cache_loc: torch.Tensor,
    pool_len: int,
) -> None:
    """Read each request's cache slots back out of the table (kernels/ops/speculative/cache_locs.py)."""
    taken = 0
    for row, start, end in zip(req_pool_indices.tolist(), start_offset.tolist(), end_offset.tolist(), strict=True):
        count = end - start
        out_cache_loc[taken : taken + count] = req_to_token[row, start:end].to(out_cache_loc.dtype)
        taken += count


def copy_all_layer_kv_cache_cpu(
    data_ptrs: torch.Tensor, strides: torch.Tensor, tgt_loc: torch.Tensor, src_loc: torch.Tensor
) -> None:
    """Copy whole slots within every layer's buffer: all are read before one is written.

    Args:
        data_ptrs: Address of each buffer, uint64 or int64.
        strides: Bytes of one slot of each buffer.
        tgt_loc: Slots to write.
        src_loc: Slots to read, one for each of those.

    Source: kernels/ops/kvcache/cache_move.py.
    """
    pairs = list(zip(tgt_loc.tolist(), src_loc.tolist(), strict=True))
    for base, size in zip(data_ptrs.tolist(), strides.tolist(), strict=True):
        slots = [ctypes.string_at(base + source * size, size) for _, source in pairs]
        for (target, _), slot in zip(pairs, slots, strict=True):
            ctypes.memmove(base + target * size, slot, size)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)

    def absent(*_args: Any, **_kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"the lab's sgl_kernel has no {name}")

    absent.__name__ = absent.__qualname__ = name
    return absent
