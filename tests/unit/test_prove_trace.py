"""torch traces: as ROCm writes them, half of one, of another GPU, of nothing; and what they say against the ring."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest
from evidence_maker import attempt, evidence, one_pass, rank, rank_status, status

from fastfill.proof.traces import TraceEvidence, TraceRank, rank_of, read
from fastfill.proof.verdict import Verdict, decide
from fastfill.proof.wire import Pass, Rank, RankPasses

ROCM = Path(__file__).parent / "traces" / "rocm-1700000000.5-TP-1.trace.json"
OURS = "_ZN5aiter38fmha_fwd_hd256_fp8_causal_group_gfx950E"


def test_a_rocm_trace_is_counted() -> None:
    found = read(ROCM.name, io.BytesIO(ROCM.read_bytes()))
    assert (found.rank.tp, found.problem, found.gpu, found.foreign) == (1, "", "AMD Instinct MI355X", False)
    assert found.ours == 2, "the launch on the host carries the name as well, and is no kernel"
    assert set(found.kernels) == {OURS, "void ck_tile::kentry<ck_tile::FmhaBatchPrefillWithPagedKVCacheKernel<1>>"}
    assert found.steps == ("step[EXTEND bs=1 toks=2048]",)
    assert not found.emulated


def test_many_other_kernels_do_not_crowd_ours_out() -> None:
    names = [f"attention_{number % 60}" for number in range(180)] + [OURS]
    events = [{"cat": "kernel", "name": name, "ts": 1, "dur": 1} for name in names]
    found = read("a-TP-0.trace.json", io.BytesIO(json.dumps({"traceEvents": events}).encode()))
    assert (found.ours, len(found.kernels)) == (1, 40)


def test_gzip_is_read_as_a_stream_and_half_of_it_is_said_to_be_half() -> None:
    whole = gzip.compress(ROCM.read_bytes())
    assert read("a-TP-0.trace.json.gz", io.BytesIO(whole)).ours == 2
    for size in (len(whole) // 2, len(whole) - 9, 10):
        half = read("a-TP-0.trace.json.gz", io.BytesIO(whole[:size]))
        assert "ends early" in half.problem
    assert "ends early" in read("a-TP-0.trace.json", io.BytesIO(ROCM.read_bytes()[:-20])).problem


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"not json", b"[1, 2]", b"{}", b'{"traceEvents": "no"}'])
def test_what_is_no_trace_is_said_to_be_none(content: bytes) -> None:
    assert read("a-TP-0.trace.json", io.BytesIO(content)).problem
    assert read("a-TP-0.trace.json.gz", io.BytesIO(content)).problem


def test_ranks_are_read_from_the_name() -> None:
    assert str(rank_of("170.5-TP-3.trace.json.gz")) == "pp0 dp0 tp3"
    assert str(rank_of("x-170.5-TP-3-DP-1-PP-2-EXTEND.trace.json.gz")) == "pp2 dp1 tp3"
    assert rank_of("something.trace.json.gz") is None


def judged(traces: tuple[TraceRank, ...], fired: int = 2, tp: int = 1, **more: Any) -> Verdict:
    """A proof that fired, with a traced probe t1 of ``fired`` calls on each rank."""
    mine = one_pass("t1", fired, number=7)
    between = tuple(RankPasses(rank=rank(index), pid=100 + index, passes=(mine,)) for index in range(tp))
    sent = (attempt("t1", *((mine,) for _ in range(tp))),)
    values: dict[str, Any] = {"attempts": sent, "whole": True, "between": between, "ranks": traces}
    patched = more.pop("patched", True)
    states = status(*(rank_status(index, patched=patched, sglang="0.5.23") for index in range(tp)))
    return decide(evidence(tp=tp, trace=TraceEvidence(**{**values, **more}), status_before=states, status_after=states))


def traced(ran: int, tp: int = 0, **more: Any) -> TraceRank:
    return TraceRank(rank=rank(tp), file=f"a-TP-{tp}.trace.json.gz", kernels={OURS: ran} if ran else {}, **more)


def word(verdict: Verdict) -> tuple[str, str]:
    (one,) = [one for one in verdict.witnesses if one.witness == "trace"]
    return one.says, one.detail


def test_as_many_kernels_as_calls_is_seen() -> None:
    assert word(judged((traced(2),)))[0] == "seen"
    assert word(judged((traced(2), traced(2, 1)), tp=2))[0] == "seen"


def test_data_parallel_ranks_are_told_apart() -> None:
    """Whole replicas share tp 0 and have their own names; where attention alone is data parallel, names say dp 0."""
    mine = one_pass("t1", number=7)
    replicas = (Rank(pp=0, dp=0, tp=0), Rank(pp=0, dp=1, tp=0))
    between = tuple(RankPasses(rank=one, pid=100, passes=(mine,)) for one in replicas)
    files = tuple(TraceRank(rank=one, file=f"a-TP-0-DP-{one.dp}.trace.json", kernels={OURS: 2}) for one in replicas)
    assert word(judged(files, between=between))[0] == "seen"
    assert word(judged((files[0], files[1].model_copy(update={"kernels": {OURS: 1}})), between=between))[0] == (
        "contradicts"
    )
    between = tuple(RankPasses(rank=Rank(pp=0, dp=tp, tp=tp), pid=100, passes=(mine,)) for tp in (0, 1))
    assert word(judged((traced(2), traced(2, 1)), tp=2, between=between))[0] == "seen"


def test_fewer_kernels_than_calls_contradict() -> None:
    verdict = judged((traced(2), traced(1, 1)), tp=2)
    assert (verdict.name, word(verdict)[0]) == ("DISAGREE", "contradicts")
    assert "tp1" in verdict.summary and "1 run(s) of the kernel in the trace, 2 call(s) in the ring" in verdict.summary


def test_more_kernels_than_anybodys_calls_contradict() -> None:
    assert judged((traced(3),)).name == "DISAGREE"
    assert word(judged((traced(3),), complete=False))[0] == "seen", "the ring has forgotten passes"
    assert word(judged((traced(3),), patched=False))[0] == "cannot_say"


def test_kernels_belong_to_passes_by_the_ring() -> None:
    """Another request's pass in between ran it twice: four in all are right, and say nothing of whose they are."""
    mine, theirs = one_pass("t1", number=7), one_pass("(hidden)", number=8)
    between = (RankPasses(rank=rank(), pid=100, passes=(mine, theirs)),)
    assert word(judged((traced(4),), between=between))[0] == "seen"
    assert word(judged((traced(5),), between=between))[0] == "contradicts"


@pytest.mark.parametrize(
    ("trace", "why"),
    [
        (traced(0, gpu="AMD Instinct MI300X"), "another GPU: AMD Instinct MI300X"),
        (traced(2, gpu="NVIDIA H200"), "another GPU"),
        (traced(2, problem="it ends early or is damaged: x"), "ends early"),
    ],
)
def test_a_trace_that_is_not_to_be_trusted_cannot_say(trace: TraceRank, why: str) -> None:
    verdict = judged((trace,))
    assert verdict.name == "FIRED"
    assert word(verdict)[0] == "cannot_say" and why in word(verdict)[1]


def test_a_gpu_without_a_name_is_not_another_gpu() -> None:
    """amdgpu.ids of some images lacks the MI355X, and its name is then empty."""
    assert word(judged((traced(2, gpu=""),)))[0] == "seen"


def test_a_rank_without_a_trace_cannot_say() -> None:
    says, detail = word(judged((traced(2),), tp=2))
    assert says == "cannot_say" and "no trace of pp0 dp0 tp1" in detail


def test_a_profiler_that_ended_early_is_no_contradiction() -> None:
    assert word(judged((traced(0),), whole=False))[0] == "cannot_say"
    assert word(judged((traced(2),), whole=False))[0] == "seen"


def test_no_kernel_and_no_call_agree() -> None:
    calls: tuple[Pass, ...] = (one_pass("t1", 0, number=7, reasons={"flag_off": 2}),)
    between = (RankPasses(rank=rank(), pid=100, passes=calls),)
    says, detail = word(judged((traced(0),), fired=0, between=between))
    assert says == "cannot_say" and "bears the counters out" in detail


def test_the_fixture_is_what_it_says() -> None:
    events = json.loads(ROCM.read_text())["traceEvents"]
    assert sum(event.get("cat") == "kernel" for event in events) == 4
