"""Answers of the fast path against those of the fallback: what is compared, and what each difference amounts to."""

from __future__ import annotations

import random
from typing import Any

import pytest
from evidence_maker import TOKENS, attempt, evidence, one_pass
from hypothesis import given
from hypothesis import strategies as st

from fastfill.proof import needle
from fastfill.proof.answers import LOST_BOUND, MEAN_BOUND, POOLED_BOUND, WORST_BOUND, judge_answers
from fastfill.proof.answers_compare import difference
from fastfill.proof.answers_seen import AnswersEvidence, Guesses, Hidden, Pair, Said, Search
from fastfill.proof.answers_send import lengths
from fastfill.proof.evidence import Evidence
from fastfill.proof.side import fallback_side, fast_side
from fastfill.proof.verdict import decide
from fastfill.proof.wire import Retrieval

FALLBACK = "fastfill-fallback-answer-1"
FORCED = {"fired": 0, "reasons": {"forced_fallback": 2}}
TASK = Retrieval(filler=(10, 250), keys=(256, 384), values=(640, 768))


def place(shift: float = 0.0, *, first: int = 0) -> Guesses:
    """Twenty guesses; ``shift`` nats worse, the token ``first`` on top."""
    order = [first, *(token for token in range(20) if token != first)]
    return tuple((token, -1.0 - 0.1 * index - shift) for index, token in enumerate(order))


def flat() -> Guesses:
    return tuple((token, -6.93) for token in range(20))


def said(
    rid: str, places: tuple[Guesses, ...] = (), *, text: str = "", tokens: tuple[int, ...] = (), **more: Any
) -> Said:
    forced = FORCED if rid.startswith("fastfill-fallback-") else {}
    one = attempt(rid, (one_pass(rid, **{**forced, **more}),))
    return Said(attempt=one, top=places, tokens=tokens or (1,) * len(places), text=text)


def pair(ours: tuple[Guesses, ...], theirs: tuple[Guesses, ...], **more: Any) -> Pair:
    return Pair(fast=said("a1", ours, **more), fallback=said(FALLBACK, theirs))


def search(wanted: str, ours: str, theirs: str | None, depth: float = 0.5) -> Search:
    return Search(
        kind="words",
        hidden=(Hidden(depth=depth, wanted=wanted),),
        fast=said("a2", text=ours),
        fallback=None if theirs is None else said(FALLBACK, text=theirs),
    )


GOOD = pair((place(),) * 3, (place(),) * 3)
FOUND = search("12345", "it is 12345", None)


def judged(**more: Any) -> tuple[str, str]:
    answers = judge_answers(AnswersEvidence(**{"prompts": 1, "pairs": (GOOD,), "searches": (FOUND,), **more}))
    return answers.status, answers.finding


def test_nothing_seen_is_nothing_said() -> None:
    assert judge_answers(None).status == "not_checked"
    assert judged(cannot="no fallback") == ("cannot_say", "")
    assert judged() == ("right", "")
    assert judged(pairs=()) == ("not_run", "deadline")


@pytest.mark.parametrize(
    ("ours", "theirs", "status", "finding"),
    [
        ((place(POOLED_BOUND * 0.9),) * 3, (place(),) * 3, "right", ""),
        ((place(MEAN_BOUND * 1.1),) * 3, (place(),) * 3, "wrong", "answers_differ"),
        ((place(),) * 39 + (place(WORST_BOUND * 1.1),), (place(),) * 40, "wrong", "answers_differ"),
        ((place(),) * 39 + (place(WORST_BOUND * 0.9),), (place(),) * 40, "right", ""),
        ((flat(),) * 3, (place(),) * 3, "wrong", "answers_not_finite"),
        ((place(), ((0, None), (1, -1.0))), (place(),) * 2, "wrong", "answers_not_finite"),
        ((flat(),) * 3, (flat(),) * 3, "cannot_say", ""),
        ((), (), "cannot_say", ""),
    ],
)  # fmt: skip
def test_log_probabilities(ours: Any, theirs: Any, status: str, finding: str) -> None:
    assert judged(pairs=(pair(ours, theirs),)) == (status, finding)


def test_one_wrong_prompt_is_not_thinned_out_by_right_ones() -> None:
    wrong = pair((place(MEAN_BOUND * 2),) * 3, (place(),) * 3)
    answers = judge_answers(AnswersEvidence(pairs=(GOOD,) * 20 + (wrong,), searches=(FOUND,)))
    assert (answers.status, answers.finding) == ("wrong", "answers_differ")
    assert f"at {TOKENS} tokens" in answers.detail


def test_a_fault_that_is_mild_at_each_prompt_shows_over_all_of_them() -> None:
    assert POOLED_BOUND < MEAN_BOUND
    mild = pair((place((POOLED_BOUND + MEAN_BOUND) / 2),) * 3, (place(),) * 3)
    assert judged(pairs=(mild,) * 3) == ("wrong", "answers_differ")
    assert judged(pairs=(mild, GOOD, GOOD)) == ("right", "")


def test_what_follows_a_parting_is_not_compared() -> None:
    ours = said("a1", (place(), place(0.1, first=1), place(5.0)), tokens=(7, 1, 3))
    theirs = said(FALLBACK, (place(), place(0.1), place()), tokens=(7, 0, 9))
    found = difference(ours, theirs)
    assert (found.places, found.agreed) == (2, 1)
    assert found.worst < 2.0


def test_a_token_that_one_side_leaves_out_is_at_most_its_least_likely() -> None:
    ours, theirs = said("a1", (((1, -0.5), (2, -3.0)),)), said(FALLBACK, (((1, -0.5), (3, -2.0)),))
    # Token 2 may be what the fallback ranks next, token 3 is at least 1 nat below what the fast side ranks last.
    assert difference(ours, theirs).worst == pytest.approx(1.0)


@given(st.lists(st.lists(st.floats(-20, -0.01), min_size=2, max_size=8, unique=True), min_size=1, max_size=6))
def test_equal_answers_do_not_differ(values: list[list[float]]) -> None:
    places = tuple(tuple(enumerate(row)) for row in values)
    found = difference(said("a1", places), said(FALLBACK, places))
    assert (found.mean, found.worst, found.agreed) == (0.0, 0.0, found.places)


@given(st.floats(0.0, 3.0), st.integers(1, 8))
def test_a_shift_is_measured_as_it_is(shift: float, count: int) -> None:
    found = difference(said("a1", (place(shift),) * count), said(FALLBACK, (place(),) * count))
    assert found.mean == pytest.approx(shift, abs=1e-9) and found.worst == pytest.approx(shift, abs=1e-9)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"fired": 0, "reasons": {"prefix_radix": 2}, "prefix": (16,), "extend": (TOKENS - 16,)}, "cached"),
        ({"fired": 0, "reasons": {"flag_off": 2}}, "flag_off"),
        ({"extend": (TOKENS - 1,)}, "prefilled"),
        ({"rids": ("a1", "x"), "prefix": (0, 8), "extend": (TOKENS, 9)}, "shared"),
    ],
)
def test_the_ring_says_that_it_was_not_the_fast_side(more: dict[str, Any], why: str) -> None:
    one = said("a1", **more).attempt
    assert why in fast_side(one)
    answers = judge_answers(
        AnswersEvidence(pairs=(pair((place(9.0),) * 3, (place(),) * 3, **more),), searches=(FOUND,))
    )
    assert answers.status == "cannot_say" and why in answers.detail


def test_the_fallback_side_must_not_read_what_the_fast_side_wrote() -> None:
    """The own-prefix comparison: the same prompt again, its prefix cached, agrees however wrong the kernel is."""
    cached = attempt(FALLBACK, (one_pass(FALLBACK, 0, prefix=(TOKENS - 1,), extend=(1,), reasons={"prefix_radix": 2}),))
    assert "cached" in fallback_side(cached)
    fired = attempt(FALLBACK, (one_pass(FALLBACK, 2),))
    assert "fast-path call" in fallback_side(fired)
    assert fallback_side(attempt(FALLBACK)) and fallback_side(attempt(FALLBACK, answer="refused", detail="no")) == "no"
    assert fallback_side(said(FALLBACK).attempt) == ""


@pytest.mark.parametrize(
    ("searches", "status", "finding"),
    [
        ([("1", "1", None)] * 5, "right", ""),
        ([("1", "1", None)] * 9 + [("1", "2", "1")], "right", ""),
        ([("1", "1", None)] * 8 + [("1", "2", "1")] * LOST_BOUND, "wrong", "needles_lost"),
        ([("1", "2", "3")] * 5, "right", ""),
        ([("1", "2", None)] * 5, "right", ""),
    ],
)
def test_needles(searches: list[tuple[str, str, str | None]], status: str, finding: str) -> None:
    """Where the model cannot retrieve, the log probabilities have the word alone."""
    assert judged(searches=tuple(search(*one) for one in searches)) == (status, finding)


def test_a_model_that_cannot_retrieve_says_so_only_after_the_fallback_failed_too() -> None:
    both = judge_answers(AnswersEvidence(pairs=(GOOD,), searches=(search("1", "2", "3"),)))
    assert both.checks[1].status == "cannot_say" and "cannot retrieve" in both.checks[1].detail
    lost = judge_answers(
        AnswersEvidence(pairs=(GOOD,), searches=(search("1", "2", "1", 0.25), search("1", "", "1", 0.97)))
    )
    assert lost.finding == "needles_lost" and "25%, 97%" in lost.detail


def test_wrong_answers_are_a_verdict_of_their_own() -> None:
    wrong = AnswersEvidence(pairs=(pair((place(1.0),) * 3, (place(),) * 3),))
    good = evidence()
    verdict = decide(good.model_copy(update={"answers": wrong}))
    assert (verdict.name, verdict.exit_code, verdict.reason and verdict.reason.id) == ("WRONG", 1, "answers_differ")
    again = Evidence.model_validate_json(good.model_copy(update={"answers": wrong}).model_dump_json(by_alias=True))
    assert again.answers == wrong


@given(st.integers(needle.shortest_token_prompt(), 5000), st.sampled_from(needle.DEPTHS), st.integers(0, 99))
def test_a_token_prompt_hides_what_it_asks_for(length: int, depth: float, seed: int) -> None:
    posed = needle.token_prompt(TASK, length, depth, random.Random(seed))
    assert len(posed.ids) == length
    places = [index for index, id in enumerate(posed.ids[:-1]) if id == posed.ids[-1]]
    assert len(places) == 1 and str(posed.ids[places[0] + 1]) == posed.hidden.wanted
    assert places[0] / length == pytest.approx(depth, abs=0.2)
    values = [id for id in posed.ids if TASK.values[0] <= id < TASK.values[1]]
    assert len(values) == len(set(values)) == needle.CROWD * len(needle.DEPTHS)


@given(st.integers(0, 9000), st.integers(0, 99))
def test_a_text_prompt_hides_five_codes_in_order(characters: int, seed: int) -> None:
    posed = needle.text_prompt(characters, random.Random(seed))
    starts = [posed.text.index(one.wanted) for one in posed.hidden]
    assert starts == sorted(starts) and len(set(starts)) == 5
    assert posed.text.count("gate is") == 5 and posed.text.endswith("commas.")


def test_the_lengths_reach_from_the_first_tile_to_the_probes_own() -> None:
    assert lengths(2048) == (2048, 682, 61)
    assert lengths(60) == (60, 20)
    assert lengths(2) == (2,)
