"""The memory sum: SGLang's own terms, but for the longest single pass."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfill.serving.memory import largest_pass, plan

MI350X = 288 * 1024.0


def fraction(tokens: int, **more: object) -> float:
    return plan(gpu_mib=MI350X, single_pass=(tokens, ""), **more).fraction  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("chunk", "max_prefill", "longest", "tokens"),
    [
        (-1, 65536, 65536, 65536),
        (-1, 16384, 131072, 131072),
        (-1, 65536, 1000, 65536),
        (0, 16384, 32768, 32768),
        (16384, 65536, 262144, 16384),
        (512, 512, 262144, 2048),
        (-1, 512, 480, 2048),
    ],
)
def test_the_largest_pass(chunk: int, max_prefill: int, longest: int, tokens: int) -> None:
    assert largest_pass(chunk=chunk, max_prefill_tokens=max_prefill, longest_prompt=longest)[0] == tokens


def test_the_published_setting_leaves_less_than_the_sum_asks_for() -> None:
    # 65,536 tokens: about 98 GB of 288, a fraction of about 0.66; the published runs used 0.80.
    assert fraction(65536, tp=4) == 0.659
    assert plan(gpu_mib=MI350X, single_pass=(65536, ""), tp=4).reserved[0].mib == 98304


def test_it_is_sglang_s_own_value_where_the_pass_is_max_prefill_tokens() -> None:
    # 0.5.16 server_args.py:4074-4086 by hand: 512 + 1.5 x 65536 + 4 / 8 x 1024 + 512 x 2 MiB of 294912.
    assert fraction(65536, tp=4) == pytest.approx((294912 - (512 + 98304 + 512 + 1024)) / 294912, abs=0.001)


def test_the_floor_of_ten_gib() -> None:
    assert fraction(2048) == pytest.approx(1 - 10 / 288, abs=0.001)
    small = plan(gpu_mib=24 * 1024.0, single_pass=(2048, ""), decode_graph_batch=24)
    assert [line.what for line in small.reserved] == ["activations", "constant", "parallel buffers", "decode graphs"]


def test_dp_attention_reserves_padding() -> None:
    plain, padded = fraction(65536, tp=8), fraction(65536, tp=8, dp=8, dp_attention=True)
    assert padded == pytest.approx(plain - 512 * 8 * 4.5 / MI350X, abs=0.001)


def test_a_vision_encoder_lowers_the_fraction_as_sglang_does() -> None:
    # 24 layers (the config says "depth", which SGLang does not read) of width 1152: 0.95 x 0.9734.
    text = fraction(65536, tp=4)
    assert fraction(65536, tp=4, vision={"depth": 27, "hidden_size": 1152}) == pytest.approx(text * 0.9248, abs=0.002)


def test_too_long_a_prompt_has_no_room() -> None:
    assert fraction(262144) < 0


def test_weights_and_cache_are_what_the_fraction_allows() -> None:
    made = plan(gpu_mib=MI350X, single_pass=(65536, ""), tp=4, weight_bytes=400 * 2**30)
    assert made.weights_mib == 100 * 1024
    assert made.cache_mib == pytest.approx(MI350X * made.fraction - 100 * 1024)
    assert "100.0 GiB" in made.table()[-2]


@given(st.integers(2048, 120000), st.integers(2048, 120000), st.sampled_from([1, 2, 4, 8]))
def test_more_tokens_never_leave_more_for_the_cache(a: int, b: int, tp: int) -> None:
    low, high = sorted((a, b))
    assert fraction(high, tp=tp) <= fraction(low, tp=tp)


@given(st.integers(2048, 180000), st.sampled_from([1, 2, 4, 8]))
def test_the_terms_and_the_fraction_add_up_to_the_gpu(tokens: int, tp: int) -> None:
    made = plan(gpu_mib=MI350X, single_pass=(tokens, ""), tp=tp)
    left = MI350X - sum(line.mib for line in made.reserved) - MI350X * made.fraction
    # Rounded down: never less is kept free than the sum says.
    assert 0 <= left < MI350X / 1000 + 1e-6
