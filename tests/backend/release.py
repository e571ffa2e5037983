"""What a model runner of each SGLang release must have for the backend to be built, beyond what 0.5.16's has."""

from __future__ import annotations

from typing import Any

from sglang.srt.runtime_context import get_context

_published: list[Any] = []


def publish(**settings: Any) -> None:
    """Make these server arguments the current ones, where the backend reads them from the context (0.5.23)."""
    override = getattr(get_context(), "override_server_args", None)
    if override is None:
        return
    if _published:
        _published.pop().restore()
    scope = override(**settings)
    scope.install()
    _published.append(scope)


def complete(runner: Any, page: int) -> None:
    """Give the runner what 0.5.23 converts KV ids with."""
    try:
        from sglang.srt.mem_cache.kv_index_translator import KVIndexTranslator
    except ImportError:
        return
    from sglang.srt.mem_cache.allocator import TokenToKVPoolAllocator

    runner.token_to_kv_pool_allocator = TokenToKVPoolAllocator(
        page, dtype=runner.kv_cache_dtype, device="cpu", kvcache=runner.token_to_kv_pool, need_sort=False
    )
    runner.kv_index_translator = KVIndexTranslator(
        req_to_token=runner.req_to_token_pool.req_to_token,
        token_to_kv_pool_allocator=runner.token_to_kv_pool_allocator,
        token_to_kv_pool=runner.token_to_kv_pool,
        page_size=page,
        device="cpu",
    )


def bind(runner: Any, forward_batch: Any) -> None:
    """Plan the batch's KV locations, as 0.5.23 does when it makes one."""
    translator = getattr(runner, "kv_index_translator", None)
    if translator is not None:
        translator.own_plan(forward_batch).bind(forward_batch, translator)
