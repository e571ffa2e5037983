"""The witness: what it counts, what it writes, and that its hooks can be seen to be on."""

from __future__ import annotations

import json
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from harness import GATHERS, Engine

from sglang_fastfill import ring, state, witness, work
from sglang_fastfill.ledger import LEDGER

FAST = "flash_attn_varlen_fp8_pertensor_func"
TARGET = f"aiter.{FAST}"


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Any:
    """SGLang's real hook registry with the witness's hooks applied, taken off again afterwards."""
    import aiter
    from sglang.srt.layers.attention import aiter_backend, aiter_utils
    from sglang.srt.model_executor.model_runner import ModelRunner
    from sglang.srt.plugins.hook_registry import HookRegistry

    names = [t.rpartition(".")[2] for t in (*witness.FUNCTIONS, *witness.DISPATCH_POINTS)]
    import aiter.ops.mha
    import aiter.ops.triton.attention.unified_attention as unified

    for module in (aiter, aiter.ops.mha, unified, aiter_backend, aiter_utils):
        for name in names:
            if callable(getattr(module, name, None)):
                monkeypatch.setattr(module, name, getattr(module, name))
    monkeypatch.setattr(ModelRunner, "forward", ModelRunner.forward)
    from sglang_fastfill import plugin

    HookRegistry.reset()
    plugin._in_scheduler()
    HookRegistry.apply_hooks()
    yield HookRegistry
    HookRegistry.reset()


def test_every_call_is_counted_once_with_the_kernel_that_it_reached(registry: Any) -> None:
    engine = Engine()
    LEDGER.begin()
    engine.extend({1: 40})
    engine.extend({1: 8})
    calls, reasons = LEDGER.end()
    if GATHERS:
        assert calls == {(FAST, "asm", 256): 2}
        assert reasons == {}
    else:
        assert calls == {(FAST, "asm", 256): 1, ("mha_batch_prefill_func", "ck", 256): 1}
        assert reasons == {"prefix_chunk": 1}


def test_the_name_is_not_the_kernel(registry: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """ENABLE_CK=0 sends the fp8 function to Triton: nothing at the dispatch point, so it is not counted as assembly."""
    import aiter
    import aiter.ops.mha

    monkeypatch.setattr(aiter.ops.mha, "ENABLE_CK", False)
    q = torch.zeros(4, 4, 256).to(torch.float8_e4m3fn)
    k = torch.zeros(4, 2, 256).to(torch.float8_e4m3fn)
    one, offsets = torch.ones(1), torch.tensor([0, 4], dtype=torch.int32)
    LEDGER.begin()
    aiter.flash_attn_varlen_fp8_pertensor_func(q, k, k, one, one, one, offsets, offsets, 4, 4, causal=True)
    calls, _ = LEDGER.end()
    assert calls == {(FAST, "unknown", 256): 1}


def test_head_dim_128_is_another_call(registry: Any) -> None:
    import aiter

    q = torch.zeros(4, 4, 128).to(torch.float8_e4m3fn)
    k = torch.zeros(4, 2, 128).to(torch.float8_e4m3fn)
    one, offsets = torch.ones(1), torch.tensor([0, 4], dtype=torch.int32)
    LEDGER.begin()
    aiter.flash_attn_varlen_fp8_pertensor_func(q, k, k, one, one, one, offsets, offsets, 4, 4, causal=True)
    calls, _ = LEDGER.end()
    assert calls == {(FAST, "asm", 128): 1}
    shares = work.shares(calls, {"head_dim_not_256": 1}, "unpatched")
    assert [(s.kernel, s.reason) for s in shares] == [("asm", "head_dim_not_256")]


def test_attachment_is_found_by_looking(registry: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import aiter

    assert all(witness.hooks().values())
    assert set(witness.hooks()) == set(witness.TARGETS)
    monkeypatch.setattr(aiter, FAST, getattr(aiter, FAST).__wrapped__)
    assert not witness.attached(TARGET)


def test_a_closure_that_holds_nothing_yet_is_no_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    import aiter

    later = 1

    def inner() -> int:
        return later  # noqa: F821 - the cell is emptied on purpose

    del later
    monkeypatch.setattr(aiter, FAST, inner)
    assert not witness.attached(TARGET)


def test_without_hooks_nothing_is_attached() -> None:
    assert not any(witness.hooks().values())


def test_a_function_that_aiter_lacks_is_not_a_failed_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    import aiter

    monkeypatch.delattr(aiter, FAST)
    assert TARGET not in witness.hooks()


def test_importing_the_plugin_does_not_import_prometheus() -> None:
    """Imported before SGLang names its multiprocess directory, it would empty SGLang's own /metrics."""
    code = (
        "import sys, sglang_fastfill.plugin, sglang_fastfill.witness, sglang_fastfill.routes, sglang_fastfill.prefill;"
        "sys.exit('prometheus_client' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def runner(draft: bool = False, **ranks: int) -> Any:
    """As much of a ModelRunner as the witness reads."""
    text = types.SimpleNamespace(num_hidden_layers=8, layer_types=["linear_attention", "full_attention"] * 4)
    fields = {"pp_rank": 0, "tp_rank": 0, "dp_rank": None, "attn_dp_rank": 0, "attn_dp_size": 1, **ranks}
    return types.SimpleNamespace(
        ps=types.SimpleNamespace(**fields),
        is_draft_worker=draft,
        attn_backend=types.SimpleNamespace(),
        model_config=types.SimpleNamespace(
            hf_text_config=text,
            hf_config=types.SimpleNamespace(architectures=["X"]),
            head_dim=256,
            num_attention_heads=8,
            get_total_num_kv_heads=lambda: 2,
            context_len=1000,
        ),
    )


def forward_batch(number: int) -> Any:
    from sglang.srt.model_executor.forward_batch_info import ForwardMode

    return types.SimpleNamespace(
        forward_mode=ForwardMode.EXTEND,
        extend_prefix_lens_cpu=[0, 16],
        extend_seq_lens_cpu=[10, 4],
        rids=[f"request-{number}", "other"],
    )


def test_the_ring_keeps_the_last_256_passes(state_dir: Path) -> None:
    state.prepare()
    mine = runner(tp_rank=1)
    watching = witness.Witness(mine)
    for number in range(1, 701):
        watching.observe(mine, forward_batch(number), lambda: LEDGER.call(FAST, "asm", 256))
    ranks = ring.read(state_dir)
    assert [entry["rank"] for entry in ranks] == [{"pp": 0, "dp": 0, "tp": 1}]
    passes = ranks[0]["passes"]
    assert [p["pass"] for p in passes] == list(range(701 - 256, 701))
    assert passes[-1]["calls"] == [{"fn": FAST, "kernel": "asm", "head_dim": 256, "count": 1}]
    assert passes[-1]["prefix"] == [0, 16]
    assert passes[-1]["extend"] == [10, 4]
    found = ring.read(state_dir, "request-70")
    assert [p["rids"][0] for p in found[0]["passes"]] == ["request-700"]


def test_a_half_written_line_is_not_read(state_dir: Path) -> None:
    state.prepare()
    mine = runner()
    watching = witness.Witness(mine)
    watching.observe(mine, forward_batch(1), lambda: None)
    file = state_dir / "passes" / "pp0-dp0-tp0.jsonl"
    file.write_bytes(file.read_bytes() + b'{"pass": 2, "rids": ["')
    assert [p["pass"] for p in ring.read(state_dir)[0]["passes"]] == [1]


def test_a_pass_that_raised_is_not_recorded(state_dir: Path) -> None:
    state.prepare()
    mine = runner()
    watching = witness.Witness(mine)

    def fail() -> None:
        raise ValueError

    with pytest.raises(ValueError):
        watching.observe(mine, forward_batch(1), fail)
    assert not LEDGER.open
    assert ring.read(state_dir) == []


def test_what_the_witness_cannot_record_does_not_stop_the_server(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk, a folder that is gone, a model whose config has no such fields: the answer goes out all the same."""
    monkeypatch.setattr(witness, "_complained", set())
    monkeypatch.setattr(witness, "_witness", None)
    monkeypatch.setattr(witness, "_unfit", False)
    mine = runner()

    def answer(*_: Any) -> str:
        LEDGER.call(FAST, "asm", 256)
        return "answer"

    assert [witness.around_forward(answer, mine, forward_batch(n)) for n in range(3)] == ["answer"] * 3
    logged = [line.message for line in caplog.records if "cannot record" in line.message]
    assert len(logged) == 2, "status and pass once each, not at every pass: no folder was prepared"
    state.prepare()
    assert witness.around_forward(answer, mine, forward_batch(4)) == "answer"
    assert len(state.read_statuses(state_dir)) == 1, "published as soon as it can be"
    assert [p["pass"] for p in ring.read(state_dir)[0]["passes"]] == [4]

    monkeypatch.setattr(witness, "_witness", None)
    tried = []
    monkeypatch.setattr(witness, "Witness", lambda runner: tried.append(runner) or 1 / 0)
    assert [witness.around_forward(answer, mine, forward_batch(n)) for n in range(3)] == ["answer"] * 3
    assert len(tried) == 1


def test_an_error_of_the_forward_pass_is_not_swallowed(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(witness, "_witness", None)
    with pytest.raises(ZeroDivisionError):
        witness.around_forward(lambda *_: 1 / 0, runner(), forward_batch(1))


def test_steps_of_speculative_decoding_do_not_push_prefills_out_of_the_ring(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sglang.srt.model_executor.forward_batch_info import ForwardMode

    monkeypatch.setattr(witness, "_witness", None)
    state.prepare()
    mine = runner()
    witness.around_forward(lambda *_: None, mine, forward_batch(1))
    step = forward_batch(2)
    for mode in (ForwardMode.TARGET_VERIFY, ForwardMode.DRAFT_EXTEND_V2, ForwardMode.DECODE):
        step.forward_mode = mode
        for _ in range(600):
            assert witness.around_forward(lambda *_: "step", mine, step) == "step"
    assert [p["rids"][0] for p in ring.read(state_dir)[0]["passes"]] == ["request-1"]


def test_a_backend_without_aiter_calls_is_named(state_dir: Path) -> None:
    state.prepare()
    mine = runner()
    witness.Witness(mine).observe(mine, forward_batch(1), lambda: None)
    record = ring.read(state_dir)[0]["passes"][0]
    assert record["reasons"] == {"backend_not_aiter": 4}
    status = state.read_statuses(state_dir)[0]
    assert status["backend"] == "SimpleNamespace"
    assert status["deployment"]["backend_not_aiter"]["status"] == "fail"
    assert status["model"]["attention_layers"] == 4


def test_the_target_model_stays_the_ranks_model_when_a_draft_runs(state_dir: Path) -> None:
    """Expected calls are counted from it: the draft's own layer must not replace the target's."""
    state.prepare()
    target, draft = runner(), runner(draft=True)
    draft.model_config.hf_text_config = types.SimpleNamespace(num_hidden_layers=1)
    watching = witness.Witness(target)
    watching.observe(target, forward_batch(1), lambda: None)
    watching.observe(draft, forward_batch(1), lambda: None)
    status = state.read_statuses(state_dir)[0]
    assert status["model"]["attention_layers"] == 4
    assert status["draft_model"]["attention_layers"] == 1
    assert [p["draft"] for p in ring.read(state_dir)[0]["passes"]] == [False, True]


def test_a_new_launcher_drops_old_records_and_keeps_the_switch(state_dir: Path) -> None:
    state.prepare()
    mine = runner()
    witness.Witness(mine).observe(mine, forward_batch(1), lambda: None)
    state.write_path(state_dir, "off", "someone", "a reason")
    state.prepare()
    assert ring.read(state_dir) == []
    assert state.read_statuses(state_dir) == []
    assert state.read_path(state_dir)["why"] == "a reason"
    assert json.loads((state_dir / "audit.jsonl").read_text())["who"] == "someone"


@pytest.mark.parametrize(
    ("calls", "reasons", "expected"),
    [
        ({(FAST, "asm", 256): 2}, {}, [("asm", "", 1.0)]),
        ({("mha_batch_prefill_func", "ck", 256): 2}, {"flag_off": 2}, [("ck", "flag_off", 1.0)]),
        ({(FAST, "asm", 256): 1, ("f", "ck", 256): 3}, {"mla": 3}, [("asm", "", 0.25), ("ck", "mla", 0.75)]),
        ({("f", "ck", 256): 4}, {"gqa_ratio": 1, "mla": 3}, [("ck", "gqa_ratio", 0.25), ("ck", "mla", 0.75)]),
        ({("f", "ck", 256): 4}, {}, [("ck", "unpatched", 1.0)]),
        ({}, {}, []),
    ],
)  # fmt: skip
def test_shares_add_up(calls: Any, reasons: Any, expected: Any) -> None:
    shares = work.shares(calls, reasons, "unpatched")
    assert [(s.kernel, s.reason, s.fraction) for s in shares] == expected


def test_attention_work_is_the_area_under_the_causal_line() -> None:
    assert work.attention_work([0], [10]) == 50
    assert work.attention_work([0, 10], [10, 10]) == 50 + 150
    whole, chunks = work.attention_work([0], [60_000]), work.attention_work([0], [16_384])
    assert chunks / whole == pytest.approx(0.0746, abs=1e-4)
