"""What the scheduler does to prompts: the chunk it uses, the largest batch, the share of work without a prefix."""

from __future__ import annotations

from dataclasses import dataclass

from fastfill.explaining.launch import Launch
from fastfill.explaining.releases import default_chunk
from sglang_fastfill.conditions import ADDRESS_LIMIT, BYTES_PER_HEAD_ROW

PROMPTS = (1024, 4096, 8192, 16384, 32768, 60000, 131072)
"""Prompt lengths, in tokens, for which ``reach`` is given unless others are asked for."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """The scheduler's bounds.

    Attributes:
        chunk: Tokens a chunk; None when chunking is off.
        how: Where that number comes from.
        refused: Why SGLang refuses these flags, "" if it does not.
        largest: Tokens that a batch can hold at most; None if nothing bounds it.
    """

    chunk: int | None
    how: str
    refused: str
    largest: int | None


def schedule(launch: Launch, gpu_memory_mib: int, model_context: int | None) -> Schedule:
    """Resolve the chunk as SGLang does: the default by GPU memory, DP attention's division, the page's multiple."""
    if launch.chunk is None:
        size, source = default_chunk(gpu_memory_mib)
        how = f"SGLang's default for a GPU of {gpu_memory_mib >> 10} GiB ({source})"
    else:
        size, how = launch.chunk, "the server's own word" if launch.chunk_resolved else "--chunked-prefill-size"
    if size > 0 and launch.dp_attention and launch.dp > 1 and not launch.chunk_resolved:
        how = f"{how}: {size} divided by {launch.dp} data-parallel ranks"
        size //= launch.dp
    refused = ""
    if size > 0 and size % launch.page_size:
        refused = f"chunked-prefill-size {size} is not a multiple of page-size {launch.page_size}"
    chunk = size if size > 0 else None
    longest = launch.context or model_context
    unchunked = max(launch.max_prefill, longest) if longest else None
    return Schedule(chunk, how, refused, chunk if chunk is not None else unchunked)


def token_limit(q_heads: int) -> int:
    """Packed tokens at which the kernel's 32-bit row offsets overflow, for the q heads of one rank."""
    return -(-ADDRESS_LIMIT // (q_heads * BYTES_PER_HEAD_ROW))


def first_chunk_share(prompt: int, chunk: int | None) -> float:
    """Share of a lone prompt's attention work that its first chunk does: work grows with the square of the length."""
    return (min(prompt, chunk or prompt) / prompt) ** 2
