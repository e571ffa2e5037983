"""The emulated aiter sends calls where aiter does, and refuses with aiter's words (c16d44b93a, aiter/ops/mha.py)."""

from __future__ import annotations

import inspect
from typing import Any

import aiter
import pytest
import torch
from aiter.jit.utils import chip_info
from aiter.ops import mha
from emulated import FP8, ONE, batch, run_python

CK = "invalid argument for fmha_fwd"
ASM = "invalid argument for fmha_v3_varlen_fwd"


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which dispatch points are called, in order: module globals, as a witness would replace them."""
    reached: list[str] = []
    for name in ("fmha_v3_varlen_fwd", "mha_varlen_fwd", "mha_batch_prefill"):
        real = getattr(mha, name)

        def record(*args: Any, _name: str = name, _real: Any = real, **kwargs: Any) -> Any:
            reached.append(_name)
            return _real(*args, **kwargs)

        monkeypatch.setattr(mha, name, record)
    return reached


@pytest.mark.parametrize("dim", [128, 256])
@pytest.mark.parametrize("heads", [(2, 2), (4, 2), (16, 1)])
def test_assembly_takes_what_aiter_gives_it(kernels: list[str], dim: int, heads: tuple[int, int]) -> None:
    answer = aiter.flash_attn_varlen_fp8_pertensor_func(**batch([9, 1, 30], *heads, dim))
    assert kernels == ["fmha_v3_varlen_fwd"]
    assert answer.dtype == torch.bfloat16
    assert answer.shape == (40, heads[0], dim)


MISSES = {
    "gqa 6": ({"heads_q": 12}, {}),
    "gqa 3": ({"heads_q": 6}, {}),
    "0-D descale": ({}, dict.fromkeys(("q_descale", "k_descale", "v_descale"), torch.tensor(1.0))),
    "one 0-D descale": ({}, {"k_descale": torch.tensor(1.0)}),
    "mixed descale shapes": ({}, {"v_descale": torch.ones(1, 2)}),
    "no descale": ({}, {"q_descale": None}),
    "descale of another shape": ({}, dict.fromkeys(("q_descale", "k_descale", "v_descale"), torch.ones(2, 2))),
    "sliding window": ({}, {"window_size": (8, 0, 0)}),
    "soft cap": ({}, {"logits_soft_cap": 30.0}),
}


@pytest.mark.parametrize("case", MISSES)
def test_what_misses_the_gate_dies_in_composable_kernel(kernels: list[str], case: str) -> None:
    shape, other = MISSES[case]
    arguments = batch([40], **{"heads_q": 4, "heads_k": 2, "dim": 256, **shape}) | other
    with pytest.raises(RuntimeError, match=f"^{CK}$"):
        aiter.flash_attn_varlen_fp8_pertensor_func(**arguments)
    assert kernels == ["mha_varlen_fwd"]


def test_per_head_descales_pass_the_gate(kernels: list[str]) -> None:
    arguments = batch([40, 5], 4, 2, 256) | dict.fromkeys(("q_descale", "k_descale", "v_descale"), torch.ones(2, 2))
    aiter.flash_attn_varlen_fp8_pertensor_func(**arguments)
    assert kernels == ["fmha_v3_varlen_fwd"]


@pytest.mark.parametrize("window", [(0, -1, 0), (-1, 0, 0)])
def test_a_window_of_exactly_zero_reaches_the_assembly(kernels: list[str], window: tuple[int, ...]) -> None:
    """(0, -1) is refused there; (-1, 0) is the causal mask by another name."""
    arguments = batch([40], 4, 2, 256) | {"window_size": window, "causal": window[0] == 0}
    if window[0] == 0:
        with pytest.raises(RuntimeError, match=f"^{ASM}$"):
            aiter.flash_attn_varlen_fp8_pertensor_func(**arguments)
    else:
        answer = aiter.flash_attn_varlen_fp8_pertensor_func(**arguments)
        causal = aiter.flash_attn_varlen_fp8_pertensor_func(**(arguments | {"causal": True, "window_size": (-1, -1)}))
        assert torch.equal(answer, causal)
    assert set(kernels) == {"fmha_v3_varlen_fwd"}


def test_a_window_as_long_as_the_keys_is_none(kernels: list[str]) -> None:
    aiter.flash_attn_varlen_fp8_pertensor_func(**(batch([40], 4, 2, 256) | {"window_size": (40, -1, 0)}))
    assert kernels == ["fmha_v3_varlen_fwd"]


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float32])
def test_a_dtype_that_aiter_does_not_know(dtype: torch.dtype) -> None:
    with pytest.raises(NotImplementedError, match="Unsupported dtype for MHA"):
        aiter.flash_attn_varlen_fp8_pertensor_func(**batch([8], 4, 2, 256, dtype))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cu_seqlens_q": torch.tensor([0, 40])}, "cu_seqlens_q must have dtype int32"),
        ({"cu_seqlens_k": torch.tensor([0, 40])}, "cu_seqlens_k must have dtype int32"),
        ({"cu_seqlens_q": torch.tensor([0, 7, 40, 7], dtype=torch.int32)[::2]}, "cu_seqlens_q must be contiguous"),
        (dict.fromkeys(("q_descale", "k_descale", "v_descale"), ONE.double()), "must be float32"),
    ],
)
def test_the_checks_of_the_cpp_side(change: dict[str, Any], words: str) -> None:
    with pytest.raises(RuntimeError, match=words):
        aiter.flash_attn_varlen_fp8_pertensor_func(**(batch([40], 4, 2, 256) | change))


@pytest.mark.parametrize(
    ("archs", "arch", "reached"),
    [
        ("native", "gfx950", "fmha_v3_varlen_fwd"),
        ("gfx942;gfx950", "gfx950", "fmha_v3_varlen_fwd"),
        ("gfx950;gfx942", "gfx942", "mha_varlen_fwd"),
    ],
)
def test_the_last_entry_of_gpu_archs_decides(
    monkeypatch: pytest.MonkeyPatch, kernels: list[str], archs: str, arch: str, reached: str
) -> None:
    monkeypatch.setenv("GPU_ARCHS", archs)
    chip_info.get_gfx.cache_clear()
    try:
        assert chip_info.get_gfx() == arch
        assert chip_info.get_gfx_runtime() == "gfx950"
        call = lambda: aiter.flash_attn_varlen_fp8_pertensor_func(**batch([40], 4, 2, 256))  # noqa: E731
        if reached == "mha_varlen_fwd":
            with pytest.raises(RuntimeError, match=CK):
                call()
        else:
            call()
    finally:
        monkeypatch.undo()
        chip_info.get_gfx.cache_clear()
    assert kernels == [reached]


def test_bf16_of_head_dim_128_is_assembly_and_of_256_is_not(kernels: list[str]) -> None:
    for dim in (128, 256):
        arguments = batch([20], 4, 2, dim, torch.bfloat16)
        for name in ("q_descale", "k_descale", "v_descale"):
            del arguments[name]
        aiter.flash_attn_varlen_func(**arguments)
    assert kernels == ["fmha_v3_varlen_fwd", "mha_varlen_fwd"]


def test_without_ck_the_fp8_function_goes_to_triton() -> None:
    answer = run_python(
        "import sys; sys.path.insert(0, 'tests/backend')\n"
        "import aiter, emulated\n"
        "from aiter.ops import mha\n"
        "def never(*a, **k): raise SystemExit('assembly')\n"
        "mha.fmha_v3_varlen_fwd = mha.mha_varlen_fwd = never\n"
        "a = emulated.batch([40], 4, 2, 256)\n"
        "o = aiter.flash_attn_varlen_fp8_pertensor_func(**a)\n"
        "print(aiter.core.ENABLE_CK, emulated.error(o, emulated.truth(a)) < 0.01)",
        ENABLE_CK="0",
    )
    assert answer.stdout.strip() == "False True", answer.stderr


def test_an_aiter_without_the_function_lacks_only_that() -> None:
    answer = run_python(
        "from aiter import mha_batch_prefill_func, flash_attn_varlen_func\n"
        "from aiter.mla import mla_decode_fwd\n"
        "from aiter import flash_attn_varlen_fp8_pertensor_func",
        AITER_EMULATOR_FAULT="no_function",
    )
    assert answer.returncode == 1
    last = answer.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: cannot import name 'flash_attn_varlen_fp8_pertensor_func' from 'aiter'")


def test_an_aiter_without_the_kernel_has_neither_row_nor_file_nor_dispatch() -> None:
    answer = run_python(
        "import sys; sys.path.insert(0, 'tests/backend')\n"
        "import aiter, emulated, pathlib\n"
        "folder = pathlib.Path(aiter.core.AITER_META_DIR) / 'hsa/gfx950/fmha_v3_fwd'\n"
        "rows = (folder / 'fmha_fwd.csv').read_text().splitlines()\n"
        "print([row for row in rows if 'hd256' in row] + list(folder.glob('*hd256*')))\n"
        "aiter.flash_attn_varlen_fp8_pertensor_func(**emulated.batch([40], 4, 2, 128)); print('128 works')\n"
        "aiter.flash_attn_varlen_fp8_pertensor_func(**emulated.batch([40], 4, 2, 256))",
        AITER_EMULATOR_FAULT="no_hd256",
        AITER_LOG_LEVEL="WARNING",
    )
    assert answer.stdout.splitlines() == ["[]", "128 works"]
    assert answer.stderr.strip().endswith(f"RuntimeError: {CK}")


def test_an_unknown_fault_is_an_error() -> None:
    answer = run_python("import aiter", AITER_EMULATOR_FAULT="no_hd265")
    assert "unknown no_hd265; known are" in answer.stderr


def test_the_mla_names_import_and_raise() -> None:
    from aiter import get_mla_metadata_v1
    from aiter.mla import mla_prefill_fwd

    for function in (get_mla_metadata_v1, mla_prefill_fwd):
        with pytest.raises(NotImplementedError, match="the emulated aiter has no"):
            function(1)


SIGNATURE = (
    "q k v q_descale k_descale v_descale cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k min_seqlen_q "
    "logits_soft_cap causal window_size softmax_scale sink_ptr"
)


def test_the_functions_take_what_aiters_take() -> None:
    parameters = inspect.signature(aiter.flash_attn_varlen_fp8_pertensor_func).parameters
    assert list(parameters) == SIGNATURE.split()
    assert parameters["window_size"].default == (-1, -1, 0)
    assert list(inspect.signature(aiter.mha_batch_prefill_func).parameters)[-3:] == [
        "kv_block_descale",
        "sink_ptr",
        "sink_size",
    ]


def test_each_name_is_one_object_everywhere() -> None:
    """A hook on ``aiter.<name>`` must catch the call through ``aiter.ops.mha`` too."""
    for name in ("flash_attn_varlen_fp8_pertensor_func", "fmha_v3_varlen_fwd", "mha_varlen_fwd", "mha_batch_prefill"):
        assert getattr(aiter, name) is getattr(mha, name)
    assert aiter.dtypes.fp8 is FP8
