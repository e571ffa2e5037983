"""The fused KV write in torch: what ``reshape_and_cache_flash`` (SGLang's Triton kernel) puts into the cache."""

from __future__ import annotations

import torch


def launch_reshape_and_cache_flash(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    swa_slot_mapping: torch.Tensor | None = None,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
) -> None:
    """Write k and v of each token into its slot.

    Args:
        key: Shape (tokens, Hk, D), bf16, fp16 or fp32; not changed.
        value: Shape (tokens, Hv, Dv).
        key_cache: Shape (pages, page size, Hk, D), any dtype; fp8 also as the uint8 that SGLang's pool stores.
        value_cache: The same with Hv, Dv.
        slot_mapping: Shape (tokens,), the slot page x size + offset; a negative slot is skipped.
        swa_slot_mapping: Maps full slots to slots of the sliding-window pool.
        k_scale: What k is divided by: 0-D, shape (1,), or None for 1.
        v_scale: The same for v.
    """
    slots = slot_mapping.long()
    if swa_slot_mapping is not None:
        slots = swa_slot_mapping[slots].long()
    kept = slots >= 0
    for source, cache, scale in ((key, key_cache, k_scale), (value, value_cache, v_scale)):
        tokens = source if scale is None else source.float() / scale.reshape(-1)[0].float()
        stored = tokens.to(cache.dtype)
        flat = cache.view(-1, *cache.shape[2:])
        if flat.element_size() == 1:
            # torch has no indexed write for fp8 on a CPU.
            flat, stored = flat.view(torch.uint8), stored.view(torch.uint8)
        flat[slots[kept]] = stored[kept]
