"""The invariants of the path inside the server, against SGLang's real backend, pools and ForwardBatch."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import harness
import pytest
import torch
from harness import FP8, GATHERS, ROUTES, Engine, cast, overflowing_casts, reference, relative_error, without_builtin
from torch.utils._python_dispatch import TorchDispatchMode

from sglang_fastfill import passes, prefill, state

FAST = "flash_attn_varlen_fp8_pertensor_func"
PAGED = "mha_batch_prefill_func"

SCALES = {
    "none": None,
    "ones-1d": torch.tensor([1.0]),
    "ones-0d": torch.tensor(1.0),
    "half": torch.tensor(0.5),
    "two": torch.tensor([2.0]),
    "0.037": torch.tensor(0.037),
}
PAIRS = [(a, a) for a in SCALES] + [("half", "ones-0d"), ("ones-1d", "half"), ("two", "0.037"), ("0.037", "none")]

# Triton's interpreter takes 15 ms a token to write the 5-D pool.
LENGTHS = {route: (40, 24) if route == "vectorized_5d" else (300, 100) for route in ROUTES}


def cached(route: str, x: torch.Tensor, scale: torch.Tensor | None) -> torch.Tensor:
    """x as the route's KV write leaves it: the 5-D pool divides in the model's dtype before it casts."""
    if route != "vectorized_5d" or scale is None:
        return cast(x, scale)
    return (x / scale).clamp(-448, 448).to(FP8).float() * float(scale)


@pytest.mark.parametrize(("k_name", "v_name"), PAIRS, ids=lambda name: name)
@pytest.mark.parametrize("route", ROUTES)
def test_right_for_every_scale_on_first_and_later_chunks(
    route: str, k_name: str, v_name: str, calls: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    first, later = LENGTHS[route]
    k_scale, v_scale = SCALES[k_name], SCALES[v_name]
    engine = Engine(route)
    engine.scales(k_scale, v_scale)
    q, k, v = engine.inputs(first, seed=1)
    out = engine.extend({1: first}, inputs=(q, k, v))
    want = reference(q.view(first, 4, 256), k, v, k_scale, v_scale)
    assert calls == [FAST]
    assert relative_error(out, want) <= 0.01

    q2, k2, v2 = engine.inputs(later, seed=2)
    out2 = engine.extend({1: later}, inputs=(q2, k2, v2))
    keys = cached(route, torch.cat([k, k2]), k_scale)
    values = cached(route, torch.cat([v, v2]), v_scale)
    want2 = reference(cast(q2.view(later, 4, 256), None), keys, values, quantised=False)
    assert calls == [FAST, FAST if GATHERS and route != "vectorized_5d" else PAGED]
    assert relative_error(out2, want2) <= 0.01
    exact = reference(q.view(first, 4, 256), k, v, quantised=False)
    with capsys.disabled():
        print(
            f"\n  {route} {k_name}/{v_name}: error against unquantised input {relative_error(out, exact):.3f}", end=""
        )


@pytest.mark.parametrize("route", ROUTES)
def test_upstream_would_fail_this(route: str, unpatched: Any) -> None:
    """The reference is able to fail: the unpatched backend at a scale of 0.5 is far outside the tolerance."""
    first, _ = LENGTHS[route]
    engine = Engine(route, unpatched)
    engine.scales(SCALES["half"], SCALES["half"])
    q, k, v = engine.inputs(first, seed=1)
    out = engine.extend({1: first}, inputs=(q, k, v))
    want = reference(q.view(first, 4, 256), k, v, SCALES["half"], SCALES["half"])
    assert relative_error(out, want) > 0.2


@pytest.mark.parametrize("heads", [2, 4, 8, 16, 32])
def test_every_head_ratio_and_uneven_sequences(heads: int, calls: list[str]) -> None:
    engine = Engine("fused", heads=heads, kv_heads=2, page=16)
    lengths = {1: 1, 2: 257, 3: 31, 4: 256}
    total = sum(lengths.values())
    q, k, v = engine.inputs(total, seed=3)
    out = engine.extend(lengths, inputs=(q, k, v))
    assert calls == [FAST]
    at = 0
    for count in lengths.values():
        piece = slice(at, at + count)
        assert relative_error(out[piece], reference(q.view(total, heads, 256)[piece], k[piece], v[piece])) <= 0.01
        at += count


def sequence(engine: Engine, scale: torch.Tensor | None, tokens: tuple[int, int]) -> list[torch.Tensor]:
    """First chunk, later chunk, and a batch of a fresh and a cached sequence; outputs and the cache's bytes."""
    engine.scales(scale, scale)
    first, later = tokens
    outputs = [
        engine.extend({1: first}, seed=1),
        engine.extend({1: later}, seed=2),
        engine.extend({2: 9, 1: 3}, seed=3),
    ]
    return [*outputs, *engine.cache_bytes()]


@pytest.mark.parametrize("scale", list(SCALES))
@pytest.mark.parametrize("route", ROUTES)
def test_flag_off_is_the_unpatched_backend(
    route: str, scale: str, unpatched: Any, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SGLANG_AITER_FMHA_FP8_ASM")
    ours = sequence(Engine(route), SCALES[scale], LENGTHS[route])
    our_calls = list(calls)
    calls.clear()
    with without_builtin(unpatched):
        theirs = sequence(Engine(route, unpatched), SCALES[scale], LENGTHS[route])
    assert our_calls == calls
    assert FAST not in calls
    for a, b in zip(ours, theirs, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("value", ["0", "false", "yes please", ""])
def test_only_one_means_on(value: str, calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_AITER_FMHA_FP8_ASM", value)
    monkeypatch.setenv("SGLANG_AITER_FMHA_FP8_HD256", "1")
    Engine().extend({1: 20})
    assert calls == [PAGED]


@pytest.mark.parametrize("scale", ["none", "ones-1d", "ones-0d"])
@pytest.mark.parametrize("route", ROUTES)
def test_flag_on_and_stopped_is_the_unpatched_backend_at_unit_scales(
    route: str, scale: str, unpatched: Any, calls: list[str], state_dir: Path
) -> None:
    state.write_path(state_dir, "off", "test", "")
    ours = sequence(Engine(route), SCALES[scale], LENGTHS[route])
    our_calls = list(calls)
    calls.clear()
    with without_builtin(unpatched):
        theirs = sequence(Engine(route, unpatched), SCALES[scale], LENGTHS[route])
    assert our_calls == calls
    assert FAST not in calls
    for a, b in zip(ours, theirs, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("scale", list(SCALES))
@pytest.mark.parametrize("route", ROUTES)
def test_cache_bytes_after_the_fast_path_are_the_unpatched_ones(
    route: str, scale: str, unpatched: Any, calls: list[str]
) -> None:
    tokens = LENGTHS[route][0]
    ours, theirs = Engine(route), Engine(route, unpatched)
    for engine in (ours, theirs):
        engine.scales(SCALES[scale], SCALES[scale])
        engine.extend({1: tokens}, seed=4)
    assert calls[0] == FAST
    for a, b in zip(ours.cache_bytes(), theirs.cache_bytes(), strict=True):
        assert torch.equal(a, b)
        assert a.any()


@pytest.mark.parametrize("scale", ["none", "half", "0.037"])
@pytest.mark.parametrize("where", ["q", "k", "v"])
@pytest.mark.parametrize("route", ROUTES)
def test_large_values_stay_finite_and_are_counted(route: str, where: str, scale: str, unpatched: Any) -> None:
    first, later = LENGTHS[route]

    def run(module: Any) -> tuple[Engine, torch.Tensor, torch.Tensor]:
        engine = Engine(route, module)
        engine.scales(SCALES[scale], SCALES[scale])
        inputs = dict(zip("qkv", engine.inputs(first, seed=6), strict=True))
        inputs[where] = inputs[where].clone()
        inputs[where].view(-1)[::37] = 1e4
        inputs[where].view(-1)[5::91] = -1e4
        chunk = dict(zip("qkv", engine.inputs(later, seed=7), strict=True))
        chunk[where] = chunk[where].clone()
        chunk[where].view(-1)[::41] = 1e4
        return (
            engine,
            engine.extend({1: first}, inputs=tuple(inputs[x] for x in "qkv")),
            engine.extend({1: later}, inputs=tuple(chunk[x] for x in "qkv")),
        )

    with overflowing_casts():
        engine, out, out2 = run(harness.patched_module)
        _, upstream, upstream2 = run(unpatched)
    assert torch.isfinite(out).all()
    assert torch.isfinite(out2).all()
    for buffer in engine.cache_bytes():
        assert torch.isfinite(buffer.view(FP8).float()).all()
    memory = engine.backend.fastfill_memory
    memory.saturated_so_far()
    counted = memory.saturated_so_far()
    assert (counted > 0) == (where in "kv")
    assert not (torch.isfinite(upstream).all() and torch.isfinite(upstream2).all()), "the plain cast overflows"


def test_cache_saturates_only_beyond_the_range(unpatched: Any) -> None:
    """Bytes are identical for |x / scale| <= 448 and the largest finite value beyond."""
    scale = SCALES["half"]
    engines = Engine(), Engine(module=unpatched)
    for engine in engines:
        engine.scales(scale, scale)
        q, k, v = engine.inputs(64, seed=8)
        k = k.clone()
        k[0, 0, :4] = torch.tensor([224.0, -224.0, 300.0, -300.0])
        with overflowing_casts():
            engine.extend({1: 64}, inputs=(q, k, v))
    (ours, _), (theirs, _) = (engine.cache_bytes() for engine in engines)
    different = ours != theirs
    assert int(different.sum()) == 2
    assert sorted(ours[different].view(FP8).float().tolist()) == [-448.0, 448.0]
    assert torch.isnan(theirs[different].view(FP8).float()).all()


def test_fp16_models_get_fp16_back(calls: list[str]) -> None:
    engine = Engine(dtype=torch.float16)
    forward_batch = engine.batch({1: 50})
    q, k, v = engine.inputs(50, seed=9)
    engine.backend.init_forward_metadata(forward_batch)
    out = engine.backend.forward_extend(q, k.clone(), v.clone(), engine.layer, forward_batch)
    assert calls == [FAST]
    assert out.dtype == torch.float16
    assert out.shape == (50, 4 * 256)
    assert relative_error(out.view(50, 4, 256).float(), reference(q.view(50, 4, 256), k, v)) <= 0.01


def test_layer_scaling_is_used(calls: list[str]) -> None:
    """Upstream's fallback assumes 1/sqrt(256); a layer that says otherwise is believed."""
    engine = Engine()
    engine.layer.scaling = 0.01
    q, k, v = engine.inputs(64, seed=10)
    out = engine.extend({1: 64}, inputs=(q, k, v))
    want = reference(q.view(64, 4, 256) * (0.01 * 16), k, v, quantised=False)
    assert calls == [FAST]
    assert relative_error(out, want) <= 0.1


def test_a_kernel_that_raises_names_the_conditions(monkeypatch: pytest.MonkeyPatch) -> None:
    import aiter

    def broken(*_args: Any, **_kwargs: Any) -> None:
        raise RuntimeError("invalid argument for fmha_fwd")

    monkeypatch.setattr(aiter, FAST, broken)
    with pytest.raises(prefill.FastPathError) as caught:
        Engine().extend({1: 20})
    text = str(caught.value)
    assert "invalid argument for fmha_fwd" in text
    assert "gqa_ratio" in text
    assert "fastfill path off" in text


class Syncs(TorchDispatchMode):
    """Counts reads of a device's memory by the host."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.is_nonzero.default):
            self.count += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("batch", [1, 64])
def test_no_host_synchronisation_and_one_judgement_a_pass(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    import aiter

    engine = Engine()
    engine.extend({70: 4})  # the layer's own conditions are decided here
    judged: list[int] = []
    real = passes.judge
    monkeypatch.setattr(passes, "judge", lambda *a: judged.append(1) or real(*a))
    monkeypatch.setattr(aiter, FAST, lambda q, *_a, **_k: torch.empty(q.shape, dtype=torch.bfloat16))
    forward_batch = engine.batch(dict.fromkeys(range(1, batch + 1), 2))
    q, k, v = engine.inputs(2 * batch, seed=1)
    engine.backend.init_forward_metadata(forward_batch)
    with Syncs() as syncs:
        for _ in range(3):
            plan = prefill.begin(engine.backend, q, k, v, engine.layer, forward_batch, None)
            assert plan is not None
            assert plan.fires
            plan.attend(engine.backend, forward_batch)
    assert syncs.count == 0
    assert judged == [1]


def test_target_and_draft_backends_keep_their_own_memory(calls: list[str], ledger: Any) -> None:
    """A draft model prefills the same ForwardBatch after the target: its first chunk is not the target's later one."""
    target, draft = Engine(), Engine()
    target.extend({1: 32}, rids=["r"])
    draft.extend({1: 32}, rids=["r"])
    assert calls == [FAST, FAST]
    target.extend({1: 8}, rids=["r"])
    draft.extend({1: 8}, rids=["r"])
    assert ledger.reasons == ({} if GATHERS else {"prefix_chunk": 2})


def test_kill_switch_acts_at_the_next_pass_and_back(state_dir: Path, calls: list[str], ledger: Any) -> None:
    engine = Engine()
    engine.extend({1: 20})
    state.write_path(state_dir, "off", "test", "why not")
    engine.extend({2: 20})
    state.write_path(state_dir, "on", "test", "")
    engine.extend({3: 20})
    (state_dir / "path.json").write_text("{")
    engine.extend({4: 20})
    (state_dir / "path.json").unlink()
    engine.extend({5: 20})
    assert calls == [FAST, PAGED, FAST, PAGED, FAST]
    assert ledger.reasons == {"operator_off": 2}
    assert len((state_dir / "audit.jsonl").read_text().splitlines()) == 2


def test_aiter_without_the_function_serves_by_the_fallback(monkeypatch: pytest.MonkeyPatch, ledger: Any) -> None:
    import aiter

    from sglang_fastfill import kernel_files

    monkeypatch.delattr(aiter, FAST)
    kernel_files.installed_state.cache_clear()
    out = Engine().extend({1: 20})
    kernel_files.installed_state.cache_clear()
    assert ledger.reasons == {"kernel_missing": 1}
    assert torch.isfinite(out).all()


def test_no_aiter_at_all_is_kernel_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    from sglang_fastfill import kernel_files

    monkeypatch.setattr(kernel_files, "importlib", types.SimpleNamespace(import_module=_refuse))
    kernel_files.installed_state.cache_clear()
    assert kernel_files.installed_state() == "missing"
    kernel_files.installed_state.cache_clear()


def _refuse(name: str) -> None:
    raise ImportError(name)
