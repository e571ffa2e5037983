"""A batch with a prefix on SGLang >= 0.5.19: its KV is gathered out of the cache, and the answers are right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from harness import FP8, GATHERS, Engine, cast, reference, relative_error
from sglang.srt.model_executor.forward_batch_info import ForwardMode

from sglang_fastfill import context, state
from sglang_fastfill.prefill import FastPathError

FAST = "flash_attn_varlen_fp8_pertensor_func"
PAGED = "mha_batch_prefill_func"

pytestmark = pytest.mark.skipif(not GATHERS, reason="this SGLang has no way to bring a prefix to the kernel")


def check(engine: Engine, requests: dict[int, int], scale: torch.Tensor | None = None, **options: Any) -> None:
    """Extend these requests and compare every sequence with fp32 attention over all its dequantised keys."""
    tokens = sum(requests.values())
    q, k, v = engine.inputs(tokens, seed=11)
    out = engine.extend(requests, inputs=(q, k, v), **options)
    at = 0
    for request, count in requests.items():
        keys, values = (cast(x, scale) for x in engine.kept[request])
        piece = cast(q.view(tokens, engine.heads, -1)[at : at + count], None)
        assert relative_error(out[at : at + count], reference(piece, keys, values, quantised=False)) <= 0.01, request
        at += count


@pytest.mark.parametrize("page", [1, 16, 64])
@pytest.mark.parametrize("scale", [None, torch.tensor(0.5), torch.tensor([0.037])], ids=["none", "half", "0.037"])
def test_fresh_cached_and_decoding_sequences_share_a_batch(
    page: int, scale: torch.Tensor | None, calls: list[str], ledger: Any
) -> None:
    engine = Engine(heads=8, kv_heads=2, page=page)
    engine.scales(scale, scale)
    engine.extend({1: 130, 2: 65, 3: 1}, seed=1)
    check(engine, {1: 64, 4: 77, 2: 1, 3: 129}, scale)
    check(engine, {4: 1, 1: 1, 5: 40}, scale, mode=ForwardMode.MIXED)
    assert calls == [FAST, FAST, FAST]
    assert ledger.reasons == {}


def test_the_kill_switch_and_the_forced_fallback_stop_a_prefix_too(
    calls: list[str], state_dir: Path, ledger: Any
) -> None:
    engine = Engine()
    engine.extend({1: 40})
    engine.extend({1: 20}, rids=["fastfill-fallback-1"])
    state.write_path(state_dir, "off", "test", "")
    check(engine, {1: 20})
    assert calls == [FAST, PAGED, PAGED]
    assert ledger.reasons == {"forced_fallback": 1, "operator_off": 1}


def test_a_layer_that_cannot_fire_leaves_the_context_to_one_that_can(ledger: Any, calls: list[str]) -> None:
    """The first layer of a pass may be one with a sliding window, whose KV pool has other slots."""
    engine = Engine()
    engine.extend({1: 40})
    window = Engine().layer
    window.sliding_window_size = 16
    forward_batch = engine.batch({1: 24})
    q, k, v = engine.inputs(24, seed=2)
    engine.backend.init_forward_metadata(forward_batch)
    engine.backend.forward_extend(q.reshape(24, -1), k.clone(), v.clone(), window, forward_batch)
    assert not forward_batch.fastfill_pass.final
    engine.backend.forward_extend(q.reshape(24, -1), k.clone(), v.clone(), engine.layer, forward_batch)
    assert forward_batch.fastfill_pass.final
    assert calls == [FAST, PAGED, FAST]
    assert ledger.reasons == {"sliding_window": 1}


def test_metadata_that_disagree_leave_the_path(monkeypatch: pytest.MonkeyPatch, ledger: Any, calls: list[str]) -> None:
    """Upstream then says that there are no indices, and so do we."""
    engine = Engine()
    engine.extend({1: 40})
    monkeypatch.setattr(type(engine.backend), "_asm_context_prefill_indices", lambda *_args: (None, None))
    check(engine, {1: 20})
    assert calls == [FAST, PAGED]
    assert ledger.reasons == {"prefix_chunk": 1}


def test_pages_are_read_in_place_only_when_asked_for_in_so_many_words(
    monkeypatch: pytest.MonkeyPatch, calls: list[str]
) -> None:
    """The emulator, as every aiter up to 2026-08-22, has no such kernel and raises: an error, never a wrong answer."""
    engine = Engine(page=64)
    engine.extend({1: 70})
    assert calls == [FAST]
    monkeypatch.setenv(context.PAGED_FLAG, "1")
    with pytest.raises(FastPathError, match="layer 0"):
        engine.extend({1: 20})
    assert calls == [FAST, PAGED]


def test_paged_call_describes_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an aiter that has the kernel is given: whole pages, each sequence's last page, and our own q."""
    import aiter

    seen: dict[str, Any] = {}

    def paged(*args: Any, **kwargs: Any) -> torch.Tensor:
        names = ("q", "k", "v", "cu_q", "indptr", "pages", "longest_q", "longest_k")
        seen.update(zip(names, args, strict=True))
        seen.update(kwargs)
        return torch.zeros(args[0].shape, dtype=torch.bfloat16)

    engine = Engine(page=64)
    engine.scales(torch.tensor(0.5), torch.tensor(0.25))
    engine.extend({1: 70, 2: 64}, seed=1)
    monkeypatch.setenv(context.PAGED_FLAG, "1")
    monkeypatch.setattr(aiter, PAGED, paged)
    engine.extend({1: 20, 2: 5}, seed=2)
    assert seen["indptr"].tolist() == [0, 2, 4]
    assert seen["kv_last_page_lens"].tolist() == [90 - 64, 69 - 64]
    assert (seen["longest_q"], seen["longest_k"]) == (20, 90)
    assert (seen["q"].dtype, seen["k"].shape[1:]) == (FP8, (64, 2, 256))
    assert [float(seen[name]) for name in ("q_descale", "k_descale", "v_descale")] == [1.0, 0.5, 0.25]
    keys = torch.cat([seen["k"][page] for page in seen["pages"][:2].tolist()])[:90]
    assert torch.equal(keys.float() * 0.5, cast(engine.kept[1][0], torch.tensor(0.5)))


def test_upstream_is_wrong_here_for_scales_other_than_one(unpatched: Any) -> None:
    """The reference is able to fail: 0.5.23 descales q by k_scale in its own gather branch."""
    engine = Engine(module=unpatched)
    engine.scales(torch.tensor(0.5), torch.tensor(0.5))
    engine.extend({1: 130}, seed=1)
    with pytest.raises(AssertionError):
        check(engine, {1: 64}, torch.tensor(0.5))
