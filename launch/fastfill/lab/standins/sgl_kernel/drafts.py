"""Speculative decoding's CPU operators, for drafts that are a chain (``--speculative-eagle-topk 1``), not a tree."""

from __future__ import annotations

import ctypes
from typing import Any

import torch


def assign_draft_cache_locs_contiguous_cpu(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    seq_lens: torch.Tensor,
    out_cache_loc: torch.Tensor,
    pool_len: int,
    topk: int,
    num_steps: int,
) -> None:
    """Read the slots after each sequence out of the table (srt/speculative/eagle_worker_common.py)."""
    count = topk * num_steps
    for at, (row, start) in enumerate(zip(req_pool_indices.tolist(), seq_lens.tolist(), strict=True)):
        out_cache_loc[at * count : (at + 1) * count] = req_to_token[row, start : start + count].to(out_cache_loc.dtype)


def build_tree_kernel_efficient_cpu(
    parent_list: torch.Tensor,
    selected_index: torch.Tensor,
    seq_lens: torch.Tensor,
    tree_mask: torch.Tensor,
    positions: torch.Tensor,
    retrieve_index: torch.Tensor,
    retrieve_next_token: torch.Tensor,
    retrieve_next_sibling: torch.Tensor,
    topk: int,
    depth: int,
    draft_tokens: int,
    tree_mask_mode: Any,
) -> None:
    """Positions, order and causal mask of the drafts (srt/speculative/eagle_utils.py).

    Args:
        tree_mask: bool, flat; for each sequence ``draft_tokens`` rows of its length and the drafts, all True before
            (FULL_MASK), or of the drafts alone.
        retrieve_index, retrieve_next_token, retrieve_next_sibling: [sequences, draft_tokens], -1 before.

    Raises:
        NotImplementedError: The drafts are a tree.
    """
    if topk != 1:
        raise NotImplementedError("the lab's sgl_kernel has no tree of drafts: --speculative-eagle-topk 1")
    steps = torch.arange(draft_tokens)
    causal = steps[None, :] <= steps[:, None]
    whole = tree_mask.numel() != seq_lens.numel() * draft_tokens * draft_tokens
    at = 0
    for row, length in enumerate(seq_lens.tolist()):
        positions[row * draft_tokens : (row + 1) * draft_tokens] = length + steps
        retrieve_index[row] = row * draft_tokens + steps
        retrieve_next_token[row, :-1] = steps[1:]
        width = draft_tokens + (length if whole else 0)
        tree_mask[at : at + draft_tokens * width].view(draft_tokens, width)[:, width - draft_tokens :] = causal
        at += draft_tokens * width


def verify_tree_greedy_cpu(
    *,
    predicts: torch.Tensor,
    accept_index: torch.Tensor,
    accept_token_num: torch.Tensor,
    candidates: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
    target_predict: torch.Tensor,
) -> None:
    """Accept drafts as long as each is what the target says after the one before (srt/speculative/eagle_utils.py).

    Args:
        predicts: [sequences * draft_tokens], written at each accepted place with what comes after it.
        accept_index: [sequences, draft_tokens at most], -1 before; places that are accepted, the first always.
        accept_token_num: [sequences], drafts accepted without the first.
        candidates, target_predict: [sequences, draft_tokens].
    """
    said = target_predict.reshape(candidates.shape)
    for row in range(candidates.shape[0]):
        agree = candidates[row, 1:] == said[row, :-1]
        accepted = min(int(agree.long().cumprod(0).sum()), accept_index.shape[1] - 1)
        places = retrive_index[row, : accepted + 1]
        accept_index[row, : accepted + 1] = places.to(accept_index.dtype)
        accept_token_num[row] = accepted
        predicts[places] = said[row, : accepted + 1].to(predicts.dtype)


def fill_bonus_tokens_cpu(
    accept_tokens: torch.Tensor, accept_lens: torch.Tensor, bonus_tokens: torch.Tensor, accept_stride: int
) -> None:
    """The last accepted token of each sequence (kernels/ops/speculative/eagle.py)."""
    last = torch.arange(accept_lens.numel()) * accept_stride + accept_lens.long() - 1
    bonus_tokens[: last.numel()] = accept_tokens.flatten()[last].to(bonus_tokens.dtype)


def fill_accept_out_cache_loc_cpu(
    accept_index: torch.Tensor, out_cache_loc: torch.Tensor, accept_out_cache_loc: torch.Tensor
) -> None:
    """The slots of the accepted places, close together (kernels/ops/speculative/eagle.py)."""
    places = accept_index.flatten()
    found = out_cache_loc[places[places > -1].long()]
    accept_out_cache_loc[: found.numel()] = found.to(accept_out_cache_loc.dtype)


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
