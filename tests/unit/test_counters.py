"""Reading /metrics: only our counters, by rank, and the difference of two readings."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, Counter, generate_latest

from fastfill.proof.counters import CALLS, CallKey, Counters, Sample, parse, rise
from fastfill.proof.coverage import coverage
from fastfill.proof.wire import Rank

TEXT = """
# HELP sglang:prompt_tokens_total Number of prefill tokens processed.
# TYPE sglang:prompt_tokens_total counter
sglang:prompt_tokens_total{model_name="m"} 640.0
# HELP fastfill:prefill_attention_calls_total Multiprocess metric
# TYPE fastfill:prefill_attention_calls_total counter
fastfill:prefill_attention_calls_total{draft="false",fn="f",head_dim="256",kernel="asm",dp_rank="0",tp_rank="0"} 6.0
fastfill:prefill_attention_calls_total{draft="true",fn="f",head_dim="256",kernel="asm",dp_rank="0",tp_rank="0"} 3.0
fastfill:prefill_attention_calls_total{draft="false",fn="g",head_dim="128",kernel="ck",dp_rank="1",tp_rank="1"} 2.0
# TYPE fastfill:prefill_skips_total counter
fastfill:prefill_skips_total{dp_rank="0",reason="prefix_radix",pp_rank="0",tp_rank="0"} 4.0
# TYPE fastfill:hook_attached gauge
fastfill:hook_attached{target="aiter.f",dp_rank="0",pp_rank="0",tp_rank="0"} 1.0
"""


def test_only_our_samples_are_kept_and_told_apart() -> None:
    counters = parse(TEXT)
    assert {one.name.split(":")[0] for one in counters.samples} == {"fastfill"}
    calls = counters.calls()
    assert calls[Rank()] == {CallKey("f", "asm", 256, False): 6, CallKey("f", "asm", 256, True): 3}
    assert calls[Rank(dp=1, tp=1)] == {CallKey("g", "ck", 128, False): 2}
    assert counters.skips() == {Rank(): {"prefix_radix": 4}}


def test_the_librarys_own_output_reads_back() -> None:
    registry = CollectorRegistry()
    labels = ("fn", "kernel", "head_dim", "draft", "pp_rank", "dp_rank", "tp_rank")
    counter = Counter("fastfill:prefill_attention_calls", "calls", labels, registry=registry)
    counter.labels("f", "asm", "256", "false", "0", "0", "1").inc(15)
    read = parse(generate_latest(registry).decode())
    assert read.calls() == {Rank(tp=1): {CallKey("f", "asm", 256, False): 15}}


@pytest.mark.parametrize(
    "text", ["<html>no</html>", 'fastfill:x{a="1} 2', "fastfill:x one", "fastfill:x NaN", "fastfill:x +Inf"]
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse(text)


def reading(**values: float) -> Counters:
    labels = {"fn": "f", "kernel": "asm", "head_dim": "256", "draft": "false"}
    return Counters(
        samples=tuple(
            Sample(name=CALLS, labels={**labels, "tp_rank": name[1:]}, value=value) for name, value in values.items()
        )
    )


def test_rise_by_rank() -> None:
    key = CallKey("f", "asm", 256, False)
    rose = rise(reading(t0=5, t1=7), reading(t0=9, t1=7, t2=1))
    assert {rank.tp: counts[key] for rank, counts in rose.items()} == {0: 4, 1: 0, 2: 1}
    assert rise(reading(t0=5), Counters())[Rank()][key] == -5


def coverage_reading(*rows: tuple[str, str, float]) -> Counters:
    return Counters(
        samples=tuple(
            Sample(
                name=f"fastfill:prefill_{what}_total",
                labels={"kernel": kernel, "reason": reason, "tp_rank": tp},
                value=value,
            )
            for what in ("tokens", "attention_work")
            for tp in ("0", "1")
            for kernel, reason, value in rows
        )
    )


def test_coverage_is_the_fast_paths_share() -> None:
    share = coverage(coverage_reading(("asm", "", 126), ("ck", "prefix_chunk", 800), ("ck", "prefix_radix", 74)))
    assert share.tokens == share.attention_work == pytest.approx(0.126)
    assert list(share.stopped.items()) == [("prefix_chunk", pytest.approx(0.8)), ("prefix_radix", pytest.approx(0.074))]


def test_coverage_counts_no_other_kernel_as_the_path() -> None:
    share = coverage(coverage_reading(("asm", "", 1), ("ck", "", 3)))
    assert share.attention_work == 0.25 and share.stopped == {"unexplained": 0.75}


def test_coverage_of_nothing_is_unknown_not_zero() -> None:
    assert coverage(Counters()).attention_work is None
    assert coverage(None).tokens is None
