"""The scheduler's model: the figures seen on the real one, and what must hold for every trace."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfill.planning.coverage import gate
from fastfill.planning.request import Batch, Request
from fastfill.planning.rules import Settings, rules
from fastfill.planning.simulate import Outcome, Simulation
from fastfill.planning.source import Closed, Open
from fastfill.planning.times import Times

TIMES = Times(pass_=0.005, token=1e-5, pair_fast=1e-9, pair_slow=3e-9, decode=0.01, row=1e-4, cached=1e-8)
RELEASES = ("0.5.16", "0.5.19", "0.5.21", "0.5.22", "0.5.23")
Seen = list[tuple[float, Batch, str]]


def run(
    wanted: Settings, requests: list[Request], release: str = "0.5.16", *, skip: bool = True, **options: int
) -> tuple[Outcome, Seen]:
    seen: Seen = []
    found = rules(release)
    simulation = Simulation(
        found,
        wanted,
        TIMES,
        gate(found, path=True, q_heads=8),
        watch=lambda began, _, batch, reason: seen.append((began, batch, reason)),
        ranks=options.get("ranks", 1),
    )
    if not skip:
        for scheduler in simulation.schedulers:
            scheduler.steps_alike = lambda: 0  # type: ignore[method-assign]
    clients = options.get("clients")
    return simulation.run(Closed(iter(requests), clients) if clients else Open(iter(requests))), seen


def eight(arrivals: list[float]) -> list[Request]:
    return [Request(number, at, 480, 8) for number, at in enumerate(arrivals)]


@pytest.mark.parametrize(
    ("chunk", "max_prefill", "arrivals", "covered"),
    [
        (512, 16384, [0.0] * 8, 0.126),
        (512, 16384, [0.0] + [0.001] * 7, 0.2506),
        (None, 512, [0.0] * 8, 1.0),
    ],
)
def test_coverage_seen_on_the_real_scheduler(
    chunk: int | None, max_prefill: int, arrivals: list[float], covered: float
) -> None:
    outcome, _ = run(Settings(chunk, max_prefill), eight(arrivals))
    assert outcome.coverage.of_work == pytest.approx(covered, abs=0.001)
    assert set(outcome.coverage.reasons()) <= {"prefix_chunk"}


def test_from_0_5_19_a_prefix_does_not_leave_the_path() -> None:
    assert run(Settings(512, 16384), eight([0.0] * 8), "0.5.19")[0].coverage.of_work == 1.0


def test_a_longer_prompt_is_admitted_alone_and_ignore_eos_lets_one_more_in() -> None:
    def lengths(ignore_eos: bool) -> list[list[int]]:
        requests = [Request(n, 0.0, size, 4, ignore_eos=ignore_eos) for n, size in enumerate((339, 604, 100))]
        return [[m[2] for m in batch.members] for _, batch, _ in run(Settings(None, 512), requests)[1]]

    assert lengths(False) == [[339], [604], [100]]
    assert lengths(True) == [[339, 604], [100]]


def test_a_repeated_prompt_recomputes_its_last_page_only() -> None:
    key = bytes(range(200)) + b"x" * 40
    pair = [Request(n, float(n), 480, 4, key=key) for n in range(2)]
    _, seen = run(Settings(None, 16384, radix=True), pair)
    assert [(m[1], m[2]) for _, batch, _ in seen for m in batch.members] == [(0, 480), (464, 16)]
    assert [reason for _, _, reason in seen] == ["", "prefix_radix"]


def test_with_linear_attention_a_prefix_is_found_where_a_state_was_kept() -> None:
    """The second prompt leaves a state where it branched off; from the third on the beginning is found."""
    common = b"".join(value.to_bytes(8, "little") for value in range(40))
    prompts = [Request(n, float(n), 800, 4, key=common + (1000 + n).to_bytes(8, "little") * 10) for n in range(3)]
    _, seen = run(Settings(None, 16384, radix=True, hybrid=True), prompts)
    assert [(m[1], m[2]) for _, batch, _ in seen for m in batch.members] == [(0, 800), (0, 800), (640, 160)]


def test_memory_is_taken_back_from_those_who_have_answered_least() -> None:
    wanted = Settings(None, 4096, kv_tokens=2400, max_running=8, first_ratio=0.1)
    requests = [Request(n, n * 0.5, 300, 600) for n in range(6)]
    outcome, _ = run(wanted, requests)
    assert outcome.requests == 6
    assert outcome.retractions > 0
    assert outcome.kv_peak <= 2400


def test_a_prompt_longer_than_the_pool_is_reported() -> None:
    outcome, _ = run(Settings(None, 4096, kv_tokens=1024), [Request(0, 0.0, 5000, 4), Request(1, 0.0, 50, 4)])
    assert (outcome.requests, outcome.refused) == (1, [(0, 5000)])


def test_mixed_chunks_forget_a_prompt_that_they_split_as_the_real_scheduler_does() -> None:
    """Seen on 0.5.16: 724 tokens, of which 192 were prefilled; the rest never was, and the answer began."""
    running = [Request(n, 0.0, size, 21, ignore_eos=n == 1) for n, size in enumerate((49, 792, 70))]
    late = [Request(3, 0.03, 792, 21), Request(4, 0.03, 724, 11), Request(5, 0.035, 640, 21, ignore_eos=True)]
    outcome, seen = run(Settings(512, 16384, mixed=True), [*running, *late])
    assert (outcome.requests, outcome.cut_short) == (6, 1)
    assert sum(m[2] for _, batch, _ in seen for m in batch.members if m[0].number == 4) < 724


def test_data_parallel_ranks_take_turns() -> None:
    one, _ = run(Settings(512, 16384), eight([0.0] * 8))
    two, _ = run(Settings(512, 16384), eight([0.0] * 8), ranks=2)
    assert one.requests == two.requests == 8
    assert two.coverage.of_work > one.coverage.of_work


def test_closed_loop_keeps_so_many_in_flight() -> None:
    outcome, seen = run(Settings(None, 512), [Request(n, 0.0, 480, 8) for n in range(20)], clients=2)
    assert outcome.requests == 20
    assert max(len(batch.members) for _, batch, _ in seen) <= 2


PAGES = st.lists(st.integers(0, 3), min_size=0, max_size=12)


@st.composite
def traces(draw: st.DrawFn) -> list[tuple[float, int, int, int, bool, list[int]]]:
    rows = []
    at = 0.0
    for _ in range(draw(st.integers(1, 14))):
        at += draw(st.sampled_from([0.0, 0.0, 0.004, 0.05, 1.0]))
        beginning = draw(PAGES)
        more = draw(st.integers(1, 900))
        new = draw(st.integers(1, 60))
        rows.append((at, more, new, draw(st.integers(new, 200)), draw(st.booleans()), beginning))
    return rows


def made(rows: list[tuple[float, int, int, int, bool, list[int]]], page: int) -> list[Request]:
    requests = []
    for number, (at, more, new, most, eos, beginning) in enumerate(rows):
        length = len(beginning) * page + more
        own = [(number + 1) * 1000 + k for k in range(more // page)]
        key = b"".join(value.to_bytes(8, "little") for value in [*beginning, *own])
        requests.append(Request(number, at, length, new, most, eos, key=key))
    return requests


@st.composite
def servers(draw: st.DrawFn) -> Settings:
    page = draw(st.sampled_from([1, 16]))
    return Settings(
        chunk=draw(st.sampled_from([None, 256, 512])),
        max_prefill=draw(st.sampled_from([300, 1024, 4096])),
        page=page,
        radix=draw(st.booleans()),
        mixed=draw(st.booleans()),
        overlap=draw(st.booleans()),
        max_running=draw(st.sampled_from([2, 5, 64])),
        kv_tokens=draw(st.sampled_from([1600, 4096, 1 << 20])),
        hybrid=draw(st.sampled_from([False, False, True])),
    )


@settings(max_examples=150, deadline=None)
@given(traces(), servers(), st.sampled_from(RELEASES))
def test_every_trace(rows: list[tuple[float, int, int, int, bool, list[int]]], wanted: Settings, release: str) -> None:
    requests = made(rows, wanted.page)
    outcome, seen = run(wanted, requests, release)
    assert outcome.requests + len(outcome.refused) + outcome.aborted == len(requests)
    if wanted.radix or not wanted.mixed or len({request.ignore_eos for request in requests}) == 1:
        assert outcome.cut_short == 0
    assert outcome.kv_peak <= wanted.kv_tokens
    parts: dict[int, list[tuple[int, int, int, bool]]] = defaultdict(list)
    for _, batch, _ in seen:
        spent = 0
        for request, prefix, extend, remains in batch.members:
            assert extend > 0
            parts[request.number].append((prefix, extend, request.found, remains))
            spent += extend
            if remains and not wanted.mixed and release < "0.5.20":
                assert (prefix + extend) % wanted.page == 0
        if wanted.chunk is not None:
            assert spent <= wanted.chunk
        elif len(batch.members) > 1:
            last = batch.members[-1]
            assert spent - last[2] < wanted.max_prefill
            if wanted.radix or not last[0].ignore_eos:
                assert spent < wanted.max_prefill + max(batch.members[0][2], 0)
    if not outcome.retractions and not outcome.cut_short:
        for request in requests:
            if not request.done:
                continue
            at = parts[request.number][0][0]
            assert at == request.found
            assert at % wanted.page == 0
            for prefix, extend, _, remains in parts[request.number]:
                assert prefix == at
                at += extend
                assert remains == (at < request.n_in)
            assert at == request.n_in


@settings(max_examples=80, deadline=None)
@given(traces(), servers(), st.sampled_from(RELEASES), st.sampled_from([1, 2]))
def test_skipped_decode_steps_change_nothing(
    rows: list[tuple[float, int, int, int, bool, list[int]]], wanted: Settings, release: str, ranks: int
) -> None:
    fast, quick = run(wanted, made(rows, wanted.page), release, ranks=ranks)
    slow, every = run(wanted, made(rows, wanted.page), release, ranks=ranks, skip=False)

    def shapes(seen: Seen) -> list[tuple[str, list[tuple[int, int, int]], int]]:
        return [(b.kind, [(m[0].number, m[1], m[2]) for m in b.members], b.rows) for _, b, _ in seen]

    assert shapes(quick) == shapes(every)
    assert [began for began, _, _ in quick] == pytest.approx([began for began, _, _ in every])
    assert list(fast.ttft) == pytest.approx(list(slow.ttft))
    assert fast.seconds == pytest.approx(slow.seconds)
    assert fast.itl.count == slow.itl.count
