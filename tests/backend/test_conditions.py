"""Each condition of the gate stops the real backend, and is the reason that is counted."""

from __future__ import annotations

import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from harness import FP8, GATHERS, Engine
from sglang.srt.model_executor.forward_batch_info import ForwardMode

from sglang_fastfill import conditions, deployment, gate, kernel_files, prefill, state

FAST = "flash_attn_varlen_fp8_pertensor_func"


def _server(monkeypatch: pytest.MonkeyPatch, **values: Any) -> Engine:
    monkeypatch.setattr(deployment, "server_args", lambda: types.SimpleNamespace(**values))
    return Engine()


def _layer(**values: Any) -> Engine:
    engine = Engine()
    for name, value in values.items():
        setattr(engine.layer, name, value)
    return engine


def _environment(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> Engine:
    monkeypatch.setenv(name, value)
    return Engine()


def run(engine: Engine, **options: Any) -> None:
    """Decide one prefill of 40 tokens, as ``forward_extend`` would, without running what may not fit the feature."""
    decide(engine, engine.batch({1: 40}, **options))


def decide(engine: Engine, forward_batch: Any, *, sinks: Any = None, keys: bool = True) -> None:
    tokens = sum(forward_batch.extend_seq_lens_cpu)
    q, k, v = engine.inputs(tokens, seed=1)
    prefill.begin(engine.backend, q, k if keys else None, v if keys else None, engine.layer, forward_batch, sinks)


def backend_not_aiter(monkeypatch: pytest.MonkeyPatch, _place: Path) -> None:
    engine = Engine()
    engine.backend.__class__ = type("SomeOtherBackend", (type(engine.backend),), {})
    run(engine)


def unsupported_topology(monkeypatch: pytest.MonkeyPatch, _place: Path) -> None:
    run(_server(monkeypatch, nnodes=2, pp_size=1, disaggregation_mode="null"))


def flag_off(monkeypatch: pytest.MonkeyPatch, _place: Path) -> None:
    monkeypatch.delenv(conditions.FLAG)
    run(Engine())


def operator_off(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    state.write_path(place, "off", "test", "")
    run(Engine())


def arch_not_gfx950(monkeypatch: pytest.MonkeyPatch, _place: Path) -> None:
    from aiter.jit.utils import chip_info

    monkeypatch.setattr(chip_info, "get_gfx", lambda: "gfx942")
    run(Engine())


def kernel_missing(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    import aiter.jit.core

    monkeypatch.setattr(aiter.jit.core, "AITER_META_DIR", str(place))
    run(Engine())


def kernel_broken(monkeypatch: pytest.MonkeyPatch, _place: Path) -> None:
    import hashlib

    import aiter.jit.core

    kernel = Path(aiter.jit.core.AITER_META_DIR) / "hsa/gfx950/fmha_v3_fwd" / kernel_files.KERNEL_FILE
    digest = hashlib.sha256(kernel.read_bytes()).hexdigest()
    monkeypatch.setattr(kernel_files, "BROKEN_SHA256", frozenset({digest}))
    run(Engine())


def ck_disabled(monkeypatch: pytest.MonkeyPatch, _place: Path) -> None:
    import aiter.jit.core

    monkeypatch.setattr(aiter.jit.core, "ENABLE_CK", False)
    run(Engine())


def head_dim_not_256(monkeypatch: pytest.MonkeyPatch, _place: Path) -> None:
    run(Engine(dim=128))


def gqa_ratio(monkeypatch: pytest.MonkeyPatch, _place: Path) -> None:
    run(Engine(heads=12, kv_heads=2))


def sliding_window(monkeypatch: pytest.MonkeyPatch, _place: Path) -> None:
    run(_layer(sliding_window_size=128))


def attention_sinks(monkeypatch: pytest.MonkeyPatch, _place: Path) -> None:
    engine = Engine()
    decide(engine, engine.batch({1: 40}), sinks=torch.zeros(4))


def logit_softcap(monkeypatch: pytest.MonkeyPatch, _place: Path) -> None:
    run(_layer(logit_cap=50.0))


def cross_attention(monkeypatch: pytest.MonkeyPatch, _place: Path) -> None:
    run(_layer(is_cross_attention=True))


def mla(monkeypatch: pytest.MonkeyPatch, _place: Path) -> None:
    engine = Engine()
    engine.backend.use_mla = True
    run(engine)


def kv_dtype_not_fp8(monkeypatch: pytest.MonkeyPatch, _place: Path) -> None:
    run(Engine(kv_dtype=torch.bfloat16))


def no_kv_input(monkeypatch: pytest.MonkeyPatch, _place: Path) -> None:
    engine = Engine()
    decide(engine, engine.batch({1: 40}), keys=False)


def context_parallel(monkeypatch: pytest.MonkeyPatch, _place: Path) -> None:
    run(_server(monkeypatch, attn_cp_size=1, enable_prefill_cp=True))


def graph_capture(monkeypatch: pytest.MonkeyPatch, _place: Path) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    run(Engine())


def rival_path(monkeypatch: pytest.MonkeyPatch, _place: Path) -> None:
    source = f"get_bool_env_var('{conditions.RIVAL_FLAG}')"
    monkeypatch.setattr(deployment.inspect, "getsource", lambda _module: source)
    run(_environment(monkeypatch, conditions.RIVAL_FLAG, "1"))


def not_extend(monkeypatch: pytest.MonkeyPatch, _place: Path) -> None:
    run(Engine(), mode=ForwardMode.TARGET_VERIFY)


def no_prefix_info(monkeypatch: pytest.MonkeyPatch, _place: Path) -> None:
    engine = Engine()
    forward_batch = engine.batch({1: 40})
    forward_batch.extend_prefix_lens_cpu = None
    decide(engine, forward_batch)


def prefix_mixed(monkeypatch: pytest.MonkeyPatch, _place: Path) -> None:
    run(Engine(), mode=ForwardMode.MIXED)


def cache_engine() -> Engine:
    """One whose prefixes no SGLang brings to the kernel."""
    return Engine("vectorized_5d") if GATHERS else Engine()


def prefix_chunk(monkeypatch: pytest.MonkeyPatch, _place: Path) -> None:
    engine = cache_engine()
    engine.extend({1: 32})
    LEDGER_RESET()
    decide(engine, engine.batch({1: 40}))


def prefix_radix(monkeypatch: pytest.MonkeyPatch, _place: Path) -> None:
    engine = cache_engine()
    engine.extend({1: 32})
    LEDGER_RESET()
    decide(engine, engine.batch({1: 40, 2: 8}, rids=["another", "fresh"]))


def batch_too_large(monkeypatch: pytest.MonkeyPatch, _place: Path) -> None:
    monkeypatch.setattr(gate, "ADDRESS_LIMIT", 40 * 4 * 512)
    run(Engine())


def forced_fallback(monkeypatch: pytest.MonkeyPatch, _place: Path) -> None:
    run(Engine(), rids=["fastfill-fallback-1"])


def LEDGER_RESET() -> None:
    from sglang_fastfill.ledger import LEDGER

    LEDGER.begin()


Case = Callable[[pytest.MonkeyPatch, Path], None]
CASES: dict[str, Case] = {condition.id: globals()[condition.id] for condition in conditions.CONDITIONS}


@pytest.fixture(autouse=True)
def _fresh_caches() -> Any:
    caches = (kernel_files.installed_state, deployment.believed_arch, deployment.device_arch)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


@pytest.mark.parametrize("id", list(CASES))
def test_condition_is_the_reason(id: str, monkeypatch: pytest.MonkeyPatch, state_dir: Path, ledger: Any) -> None:
    CASES[id](monkeypatch, state_dir)
    assert ledger.reasons == {id: 1}


@pytest.mark.parametrize("id", list(CASES))
def test_without_the_condition_its_case_fails(
    id: str, monkeypatch: pytest.MonkeyPatch, state_dir: Path, ledger: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """The mutation run on the real backend: a gate that ignores this condition is caught by the case above."""
    for table in (gate.DEPLOYMENT, gate.DYNAMIC, gate.BATCH):
        if id in table:
            monkeypatch.delitem(table, id)
    monkeypatch.setattr(gate, "SIZE_GUARDED", gate.SIZE_GUARDED - {id})
    CASES[id](monkeypatch, state_dir)
    assert ledger.reasons != {id: 1}
    with capsys.disabled():
        print(f"\n  gate without {id}: caught by test_condition_is_the_reason[{id}], got {ledger.reasons}", end="")


def test_nothing_stops_a_plain_prompt(ledger: Any, calls: list[str]) -> None:
    Engine().extend({1: 40, 2: 3})
    assert ledger.reasons == {}
    assert calls == [FAST]


@pytest.mark.parametrize(("files", "expected"), [("all", "present"), ("no row", "missing"), ("no object", "missing")])
def test_kernel_files_decide_not_the_import(files: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / kernel_files.KERNEL_TABLE).write_text(
        "dtype,co_name\n" + ("" if files == "no row" else f"fp8bf16,{kernel_files.KERNEL_FILE}\n")
    )
    if files != "no object":
        (tmp_path / kernel_files.KERNEL_FILE).write_bytes(b"kernel")
    assert kernel_files.folder_state(tmp_path) == expected


@pytest.mark.parametrize("table", [b"dtype,co_name\n\xff\xfe,other.co\n", b'"' + b"x" * 200_000, b""])
def test_a_kernel_table_that_makes_no_sense_is_a_missing_kernel(table: bytes, tmp_path: Path) -> None:
    (tmp_path / kernel_files.KERNEL_TABLE).write_bytes(table)
    (tmp_path / kernel_files.KERNEL_FILE).write_bytes(b"kernel")
    assert kernel_files.folder_state(tmp_path) == "missing"


def test_an_aiter_without_the_folders_name_is_a_missing_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    from aiter.jit import core

    monkeypatch.delattr(core, "AITER_META_DIR")
    assert kernel_files.installed_state() == "missing"


def test_a_layer_that_is_given_sinks_later_leaves_the_path(ledger: Any) -> None:
    """The kernel would ignore them without a word."""
    engine = Engine()
    decide(engine, engine.batch({1: 40}))
    assert ledger.reasons == {}
    decide(engine, engine.batch({2: 40}), sinks=torch.zeros(engine.heads))
    assert ledger.reasons == {"attention_sinks": 1}


def test_a_batch_object_that_is_used_again_with_other_prefixes_is_judged_again(ledger: Any) -> None:
    engine = cache_engine()
    forward_batch = engine.batch({1: 40})
    decide(engine, forward_batch)
    decide(engine, forward_batch)
    assert ledger.reasons == {}
    forward_batch.extend_prefix_lens_cpu = [16]
    decide(engine, forward_batch)
    assert ledger.reasons == {"prefix_radix": 1}
    forward_batch.extend_prefix_lens_cpu = None
    decide(engine, forward_batch)
    assert ledger.reasons == {"prefix_radix": 1, "no_prefix_info": 1}


def test_a_near_miss_flag_is_reported(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    run(_environment(monkeypatch, "SGLANG_AITER_FMHA_FP8_HD256", "1"))
    assert "SGLANG_AITER_FMHA_FP8_HD256" in caplog.text
    assert conditions.FLAG in caplog.text
    assert deployment.near_misses() == ["SGLANG_AITER_FMHA_FP8_HD256"]


def test_the_rival_flag_alone_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, ledger: Any
) -> None:
    run(_environment(monkeypatch, conditions.RIVAL_FLAG, "1"))
    assert conditions.RIVAL_FLAG in caplog.text
    assert ledger.reasons == {}


def test_kv_dtype_is_named_as_torch_names_it() -> None:
    assert str(FP8) == "torch.float8_e4m3fn"
