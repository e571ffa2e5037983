"""The batch conditions, each a pure function of the facts: which requests leave the path, and by what."""

from __future__ import annotations

from collections.abc import Callable

from fastfill.explaining.facts import Facts, Result, attention_ranks, rank_heads
from fastfill.explaining.scheduler import token_limit
from sglang_fastfill.conditions import FALLBACK_RID_PREFIX
from sglang_fastfill.state import ALLOW_FORCED_FALLBACK, truthy

_PREFIX = "facts/sglang.md 3.3, 3.5 and 3.6"
_GATHER = "0.5.19 aiter_backend.py:2796-2858; sgl-project/sglang#36758"
_PAGED = "0.5.23 aiter_backend.py:2591-2602, 4609-4633; ROCm/aiter#4971"


def not_extend(facts: Facts) -> Result:
    value = "prefills are plain extends; decode has its own kernels"
    if facts.launch.speculative:
        value = f"{facts.launch.speculative}: the draft's prefill is an extend too; its verify passes are not"
    return Result("not_extend", "pass", value, "facts/sglang.md 3.2 and 3.12")


def no_prefix_info(facts: Facts) -> Result:
    return Result("no_prefix_info", "pass", "prefills carry their prefix lengths on the host", "facts/sglang.md 3.2")


def prefix_mixed(facts: Facts) -> Result:
    launch = facts.launch
    if not launch.mixed:
        return Result("prefix_mixed", "pass", "--enable-mixed-chunk is not given", _PREFIX)
    if facts.schedule.chunk is None:
        return Result("prefix_mixed", "pass", "mixed chunks need chunking, which is off", _PREFIX)
    if launch.speculative:
        return Result("prefix_mixed", "pass", f"{launch.speculative} switches mixed chunks off", _PREFIX)
    return _with_prefix(facts, "prefix_mixed", "any prefill while others decode")


def prefix_chunk(facts: Facts) -> Result:
    chunk = facts.schedule.chunk
    if chunk is None:
        return Result("prefix_chunk", "pass", "chunking is off", _PREFIX)
    what = f"every chunk but a prompt's first, and what is batched with it; chunk {chunk} ({facts.schedule.how})"
    return _with_prefix(facts, "prefix_chunk", what)


def prefix_radix(facts: Facts) -> Result:
    if not facts.launch.radix:
        return Result("prefix_radix", "pass", "the radix cache is off", _PREFIX)
    return _with_prefix(facts, "prefix_radix", "a prompt whose beginning is cached, and what is batched with it")


def _with_prefix(facts: Facts, id: str, who: str) -> Result:
    """What happens to a batch in which a sequence has a prefix."""
    if facts.release.path == "unknown":
        return Result(id, "unknown", f"{facts.release.source}: what it does with a prefix is not known", _PREFIX)
    if facts.paged:
        if facts.aiter.paged is None:
            value = "page size 64: whether this aiter has the paged kernel (#4971) is not known"
            return Result(
                id, "unknown", value, _PAGED, fix="use another --page-size, or SGLANG_AITER_PAGED_PREFILL_ASM=0"
            )
        if not facts.aiter.paged:
            value = f"{who}; page size 64 needs an aiter with the paged kernel (#4971), and this one raises"
            fix = "set SGLANG_AITER_PAGED_PREFILL_ASM=0, use --page-size 16, or a newer aiter"
            return Result(id, "per_request", value, _PAGED, "crashes", fix)
        return Result(id, "pass", "page size 64: the paged kernel reads the cache in place", _PAGED)
    five_d = (facts.env or {}).get("SGLANG_AITER_KV_CACHE_LAYOUT") == "vectorized_5d"
    if facts.release.prefix == "gathers" and not five_d:
        return Result(id, "pass", "the prefix's KV is gathered: the batch stays on the path", _GATHER)
    return Result(id, "per_request", who, _PREFIX, "stops")


def batch_too_large(facts: Facts) -> Result:
    source = "facts/aiter.md section 1: 32-bit offsets (disassembled), no guard in aiter"
    heads = None
    if facts.model.q_heads is not None and facts.layers.kv_heads is not None:
        heads = rank_heads(facts.model.q_heads, facts.layers.kv_heads, attention_ranks(facts.launch))
    if heads is None:
        return Result("batch_too_large", "unknown", "the q heads of a rank are not known", source)
    limit, largest = token_limit(heads[0]), facts.schedule.largest
    if largest is not None and largest < limit:
        value = f"a batch holds at most {largest} tokens; the limit is {limit} at {heads[0]} q heads a rank"
        return Result("batch_too_large", "pass", value, source)
    value = f"batches of {limit} tokens and more ({heads[0]} q heads a rank); the largest is {largest or 'not bounded'}"
    effect = "stops" if facts.release.size_guard or not facts.builtin else "wrong"
    return Result("batch_too_large", "per_request", value, source, effect)  # type: ignore[arg-type]


def forced_fallback(facts: Facts) -> Result:
    source = "patches/sglang_fastfill/gate.py"
    if facts.patched and truthy((facts.env or {}).get(ALLOW_FORCED_FALLBACK)):
        value = f"{ALLOW_FORCED_FALLBACK}=1: requests with a rid that starts with {FALLBACK_RID_PREFIX}"
        return Result("forced_fallback", "per_request", value, source, "stops")
    return Result("forced_fallback", "pass", "not allowed" if facts.patched else "not in this SGLang", source)


CONDITIONS: tuple[Callable[[Facts], Result], ...] = (
    not_extend,
    no_prefix_info,
    prefix_mixed,
    prefix_chunk,
    prefix_radix,
    batch_too_large,
    forced_fallback,
)
