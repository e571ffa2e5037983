"""What the emulated kernels answer, right and wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import aiter
import pytest
import torch
from aiter import _asm
from aiter.faults import FAULTS, AnswerFaults
from aiter.ops.triton.attention.unified_attention import unified_attention
from aiter.ops.triton.gluon.pa_decode_gluon import pa_decode_gluon
from emulated import FP8, batch, error, run_python, truth


def answer(arguments: dict[str, Any]) -> torch.Tensor:
    return aiter.flash_attn_varlen_fp8_pertensor_func(**arguments)


@pytest.fixture
def fault(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Ask for faults, with the layer count begun anew."""

    def ask(names: str, layers: int = 1) -> None:
        monkeypatch.setenv("AITER_EMULATOR_FAULT", names)
        monkeypatch.setenv("AITER_EMULATOR_LAYERS", str(layers))
        monkeypatch.setattr(_asm, "_answer_faults", AnswerFaults())

    return ask


@pytest.mark.parametrize("lengths", [[1], [2], [300], [5, 1, 260, 37]])
@pytest.mark.parametrize("heads", [(2, 2), (4, 2), (16, 1)])
def test_the_assembly_kernel_is_attention(lengths: list[int], heads: tuple[int, int]) -> None:
    arguments = batch(lengths, *heads, 256)
    assert error(answer(arguments), truth(arguments)) < 0.005


def test_without_the_mask_it_is_another_answer() -> None:
    arguments = batch([300], 4, 2, 256) | {"causal": False}
    assert error(answer(arguments), truth(arguments, causal=False)) < 0.005
    assert error(answer(arguments), truth(arguments)) > 0.3


def test_a_batch_of_single_tokens_drops_the_mask() -> None:
    """max_seqlen_q of 1 means no mask at all: a single query sees every key."""
    arguments = batch([1], 4, 2, 256)
    keys = batch([9], 4, 2, 256)
    arguments |= {"k": keys["k"], "v": keys["v"], "cu_seqlens_k": keys["cu_seqlens_k"], "max_seqlen_k": 9}
    wide = truth(keys | {"q": arguments["q"].expand(9, -1, -1)}, causal=False)[:1]
    assert error(answer(arguments), wide) < 0.005


def test_only_element_0_of_a_descale_is_read() -> None:
    arguments = batch([60, 7], 4, 2, 256)
    for name, first in (("q_descale", 0.5), ("k_descale", 0.25), ("v_descale", 3.0)):
        arguments[name] = torch.tensor([[first, 9.0], [9.0, 9.0]])
    assert error(answer(arguments), 3.0 * truth(arguments, scale=0.125)) < 0.005


def test_a_ratio_of_32_passes_and_is_wrong() -> None:
    arguments = batch([60], 32, 1, 256)
    wrong, right = answer(arguments), truth(arguments)
    assert error(wrong[:, :16], right[:, :16]) < 0.005
    assert error(wrong[:, 16:], right[:, 16:]) > 0.5
    assert torch.isfinite(wrong).all()


def test_softmax_weights_in_fp8_cost_a_little(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = batch([300], 4, 2, 256)
    monkeypatch.setenv("AITER_EMULATOR_P_FP8", "1")
    assert 0.005 < error(answer(arguments), truth(arguments)) < 0.03


@pytest.mark.parametrize("name", ["noncausal", "half_scale", "revision_b", "unwritten_rows"])
def test_a_fault_shows(fault: Any, name: str) -> None:
    arguments = batch([600], 4, 2, 256)
    fault(name)
    assert error(answer(arguments), truth(arguments)) > 0.3


def test_a_kernel_of_nan_and_a_kernel_that_raises(fault: Any) -> None:
    arguments = batch([40], 4, 2, 256)
    fault("nan")
    assert torch.isnan(answer(arguments)).all()
    fault("raises")
    with pytest.raises(RuntimeError, match=r"^invalid argument for fmha_v3_varlen_fwd$"):
        answer(arguments)


@pytest.mark.parametrize(
    ("lengths", "damaged"),
    [
        # Tiles of 256 rows, T = ceil(total / 256), the first ceil(T / 2) tiles of each sequence are written.
        ([256], {}),
        ([257], {0: 256}),
        ([512], {0: 256}),
        ([600], {0: 512}),
        ([2048], {0: 1024}),
        ([300, 300, 300, 300], {}),
        ([900, 100], {0: 512}),
    ],
)
def test_revision_b_leaves_rows_unwritten(fault: Any, lengths: list[int], damaged: dict[int, int]) -> None:
    arguments = batch(lengths, 2, 2, 256)
    right = answer(arguments)
    fault("unwritten_rows")
    wrong = answer(arguments)
    starts = arguments["cu_seqlens_q"].tolist()
    for index, start in enumerate(starts[:-1]):
        written = starts[index] + damaged.get(index, lengths[index])
        assert torch.equal(wrong[start:written], right[start:written])
        if index in damaged:
            rest = slice(written, starts[index + 1])
            assert not (wrong[rest] == right[rest]).all(-1).any()
            assert torch.isfinite(wrong[rest]).all()


def test_revision_b_without_the_mask_is_whole(fault: Any) -> None:
    arguments = batch([600], 2, 2, 256) | {"causal": False}
    right = answer(arguments)
    fault("unwritten_rows")
    assert torch.equal(answer(arguments), right)


def test_a_fault_of_the_first_layer_only(fault: Any) -> None:
    arguments = batch([40], 4, 2, 256)
    right = answer(arguments)
    fault("half_scale,first_layer_only", layers=3)
    wrong = [not torch.equal(answer(arguments), right) for _ in range(6)]
    assert wrong == [True, False, False, True, False, False]


def test_faults_touch_the_assembly_kernel_alone(fault: Any) -> None:
    arguments = batch([40], 4, 2, 256, torch.bfloat16)
    for name in ("q_descale", "k_descale", "v_descale"):
        del arguments[name]
    fault("nan")
    assert error(aiter.flash_attn_varlen_func(**arguments), truth(arguments)) < 0.01


def test_every_fault_is_explained() -> None:
    assert all(len(meaning) > 20 for meaning in FAULTS.values())
    assert AnswerFaults.names < FAULTS.keys()


def test_the_load_line_is_aiters_once_a_process() -> None:
    code = (
        "import sys; sys.path.insert(0, 'tests/backend')\n"
        "import aiter, emulated\n"
        "for _ in range(2): aiter.flash_attn_varlen_fp8_pertensor_func(**emulated.batch([9], 4, 2, 256))\n"
        "print('META', aiter.core.AITER_META_DIR)"
    )
    lines = run_python(code).stdout.splitlines()
    meta = lines.pop().removeprefix("META ")
    symbol = "_ZN5aiter38fmha_fwd_hd256_fp8_causal_group_gfx950E"
    file = f"{meta}/hsa//gfx950/fmha_v3_fwd/fwd_hd256_fp8_causal_group.co"
    assert lines == [f"[aiter] LoadKernel: {symbol} hsaco: {file}"]
    assert Path(file).read_text().startswith("emulated\n")
    assert "LoadKernel" not in run_python(code, AITER_LOG_LEVEL="WARNING").stdout


def test_revision_b_has_files_of_its_own() -> None:
    code = (
        "import aiter, hashlib, pathlib; f = pathlib.Path(aiter.core.AITER_META_DIR)\n"
        "print(hashlib.sha256((f / 'hsa/gfx950/fmha_v3_fwd/fwd_hd256_fp8_causal_group.co').read_bytes()).hexdigest())"
    )
    hashes = {run_python(code, AITER_EMULATOR_FAULT=name).stdout for name in ("", "revision_b", "unwritten_rows")}
    assert len(hashes) == 2


def test_calls_are_logged_and_profiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "calls.jsonl"
    monkeypatch.setenv("AITER_EMULATOR_LOG", str(log))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        answer(batch([3, 4], 4, 2, 256))
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(entry["level"], entry["name"]) for entry in entries] == [
        ("function", "flash_attn_varlen_fp8_pertensor_func"),
        ("kernel", "asm"),
    ]
    assert entries[1]["cu_q"] == [0, 3, 7]
    assert entries[1]["q"] == [7, 4, 256]
    names = {event.name for event in profile.events()}
    # The recorded name is the mangled one; torch shows it demangled.
    assert "aiter::fmha_fwd_hd256_fp8_causal_group_gfx950" in names


def test_the_log_of_a_server_that_is_left_running_ends_somewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from aiter import _trace

    log = tmp_path / "calls.jsonl"
    monkeypatch.setenv("AITER_EMULATOR_LOG", str(log))
    monkeypatch.setattr(_trace, "LONGEST_LOG", 200)
    for _ in range(20):
        _trace.log("kernel", "asm")
    assert 200 <= log.stat().st_size < 400


def _paged(layout: str, page: int) -> tuple[dict[str, Any], torch.Tensor, torch.Tensor, torch.Tensor]:
    """A prompt of 50 tokens, its K and V in scattered pages of one of aiter's layouts, and the page table."""
    arguments = batch([50], 4, 2, 256)
    pages = -(-50 // page)
    order = torch.randperm(pages + 3, generator=torch.Generator().manual_seed(1))[:pages]
    caches = []
    for name in "kv":
        rows = torch.zeros(pages * page, 2, 256)
        rows[:50] = arguments[name].float()
        rows = rows.reshape(pages, page, 2, 256)
        if layout == "5d":
            x = 16
            if name == "k":
                rows = rows.reshape(pages, page, 2, 256 // x, x).permute(0, 2, 3, 1, 4)
            else:
                rows = rows.reshape(pages, page // x, x, 2, 256).permute(0, 3, 1, 4, 2)
        cache = torch.zeros(pages + 3, *rows.shape[1:])
        cache[order] = rows
        caches.append(cache.flatten(0, 1) if layout == "3d" else cache)
    return arguments, *(cache.to(FP8).contiguous() for cache in caches), order


@pytest.mark.parametrize(("layout", "page"), [("3d", 1), ("4d", 16), ("5d", 16)])
def test_the_paged_kernel_reads_each_layout(layout: str, page: int) -> None:
    arguments, k, v, order = _paged(layout, page)
    last = torch.tensor([50 - (len(order) - 1) * page], dtype=torch.int32)
    result = aiter.mha_batch_prefill_func(
        arguments["q"],
        k,
        v,
        arguments["cu_seqlens_q"],
        torch.tensor([0, len(order)], dtype=torch.int32),
        order.to(torch.int32),
        50,
        50,
        causal=True,
        kv_last_page_lens=last,
        q_descale=torch.tensor(1.0),
        k_descale=torch.tensor([1.0]),
        v_descale=torch.tensor([2.0]),
    )
    assert error(result, 2.0 * truth(arguments)) < 0.005


def _prefill(k: torch.Tensor, v: torch.Tensor, arguments: dict[str, Any], order: torch.Tensor, last: Any) -> Any:
    starts, pages = arguments["cu_seqlens_q"], torch.tensor([0, len(order)], dtype=torch.int32)
    scales = dict.fromkeys(("q_descale", "k_descale", "v_descale"), torch.ones(1))
    return aiter.mha_batch_prefill_func(
        arguments["q"], k, v, starts, pages, order.int(), 50, 50, causal=True, kv_last_page_lens=last, **scales
    )


def test_no_kernel_reads_an_fp8_cache_of_head_dim_256_in_linear_pages_of_64() -> None:
    """What SGLang from 0.5.21 on asks of an aiter with #4971, and this one is older."""
    arguments, k, v, order = _paged("4d", 64)
    with pytest.raises(RuntimeError, match=r"invalid argument for batch_prefill: .*page_size=64"):
        _prefill(k, v, arguments, order, torch.tensor([50], dtype=torch.int32))
    _prefill(*(cache.reshape(-1, 16, 2, 256) for cache in (k, v)), arguments, torch.arange(4), torch.tensor([2]))
    arguments, k, v, order = _paged("5d", 64)
    assert _prefill(k, v, arguments, order, torch.tensor([50])).shape == (50, 4, 256)


def test_pages_need_the_length_of_the_last_one_and_a_cache_of_one_shape() -> None:
    arguments, k, v, order = _paged("4d", 16)
    with pytest.raises(RuntimeError, match="must pass kv_last_page_lens"):
        _prefill(k, v, arguments, order, None)
    with pytest.raises(ValueError, match="must match page size and head count"):
        _prefill(k, v.reshape(-1, 32, 1, 256), arguments, order, torch.tensor([2]))


def test_unified_attention_is_the_same_attention() -> None:
    arguments, k, v, order = _paged("4d", 16)
    out = torch.empty(50, 4, 256, dtype=torch.bfloat16)
    unified_attention(
        arguments["q"].to(torch.bfloat16),
        k,
        v,
        out,
        arguments["cu_seqlens_q"],
        50,
        torch.tensor([50]),
        64,
        256**-0.5,
        True,
        (-1, -1),
        order[None],
        0,
        None,
        torch.ones(1),
        torch.tensor(0.5),
    )
    assert error(out, 0.5 * truth(arguments)) < 0.005


def test_decode_kernels_answer_as_the_last_row_of_prefill() -> None:
    arguments, k, v, order = _paged("5d", 16)
    query = arguments["q"][-1:].to(torch.bfloat16)
    out = torch.empty(1, 4, 256, dtype=torch.bfloat16)
    pa_decode_gluon(
        out, query, k, v, torch.tensor([50]), order[None], 256**-0.5, 1, 1, 256, torch.bfloat16, None, None, None
    )
    assert error(out, truth(arguments)[-1:]) < 0.005

    _, k, v, order = _paged("3d", 1)
    out = torch.empty(1, 4, 256, dtype=torch.bfloat16)
    aiter.paged_attention_ragged(
        out,
        None,
        query,
        k.unsqueeze(1),
        v.unsqueeze(1),
        256**-0.5,
        torch.tensor([0, 50]),
        order,
        None,
        1,
        1,
        None,
        "fp8_e4m3",
        "NHD",
        0.0,
        torch.tensor(1.0),
        torch.tensor([2.0]),
    )
    assert error(out, 2.0 * truth(arguments)[-1:]) < 0.005
