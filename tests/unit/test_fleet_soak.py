"""What a canary's traffic says, beside that of the others."""

from __future__ import annotations

import math

from fastfill.fleet import numbers, soak
from fastfill.fleet.soak import Limits, Served, judge, served


def page(requests: int, *, aborted: int = 0, slow: int = 0, fired: float = 90, skipped: float = 10) -> str:
    return f"""# HELP x
sglang:num_requests_total{{tp_rank="0"}} {requests}
sglang:num_aborted_requests_total{{tp_rank="0"}} {aborted}
sglang:time_to_first_token_seconds_bucket{{le="0.1"}} {requests - slow}
sglang:time_to_first_token_seconds_bucket{{le="1.0"}} {requests}
sglang:time_to_first_token_seconds_bucket{{le="+Inf"}} {requests}
fastfill:prefill_attention_work_total{{kernel="asm",reason="",tp_rank="0"}} {fired}
fastfill:prefill_attention_work_total{{kernel="ck",reason="prefix_radix",tp_rank="0"}} {skipped}
fastfill:saturated_total{{tp_rank="0"}} 0
sglang:num_running_reqs{{tp_rank="0"}} 2
sglang:num_queue_reqs{{tp_rank="0"}} 3
sglang:num_running_reqs{{tp_rank="1"}} 2
sglang:num_queue_reqs{{tp_rank="1"}} 3
"""


GOOD = Served(600, 0, 0.1, 0.9, 0)
DONE = {"elapsed_s": 1801.0, "soak_s": 1800.0}


def state(canary: Served, others: list[Served] | None = None, **more: float) -> str:
    return str(judge(canary, [GOOD] if others is None else others, Limits(), **(DONE | more))["state"])


def test_numbers_are_of_the_time_between() -> None:
    found = served(page(100, fired=90, skipped=10), page(600, aborted=5, slow=200, fired=540, skipped=60))
    assert (found.requests, found.aborted, found.coverage) == (500, 5, 0.9)
    assert found.ttft_p90 == 1.0


def test_a_restart_in_between_starts_again_from_nothing() -> None:
    assert served(page(100, fired=200), page(30)).requests == 30


def test_load_is_that_of_one_rank() -> None:
    assert numbers.load(page(1)) == 5
    assert numbers.load("") is None


def test_a_quantile_that_only_the_last_bucket_holds_is_infinite() -> None:
    text = 'x_bucket{le="1"} 1\nx_bucket{le="+Inf"} 9\n'
    assert numbers.quantile(text, "x", 0.9) == math.inf
    assert numbers.quantile("", "x", 0.9) is None


def test_a_canary_like_the_others_is_good_when_it_served_long_enough() -> None:
    assert state(GOOD) == "good"
    assert state(GOOD, elapsed_s=10.0) == "not_yet"
    assert state(Served(499, 0, 0.1, 0.9, 0)) == "not_yet"


def test_each_number_can_send_it_back() -> None:
    assert state(Served(600, 30, 0.1, 0.9, 0)) == "bad"
    assert state(Served(600, 0, 0.5, 0.9, 0)) == "bad"
    assert state(Served(600, 0, 0.1, 0.7, 0)) == "bad"
    assert state(Served(600, 0, 0.1, 0.9, 9000)) == "bad"


def test_bad_is_said_before_the_time_is_over() -> None:
    assert state(Served(600, 30, 0.1, 0.9, 0), elapsed_s=20.0) == "bad"


def test_the_others_errors_excuse_its_own() -> None:
    assert state(Served(600, 30, 0.1, 0.9, 0), [Served(600, 30, 0.1, 0.9, 0)]) == "good"


def test_a_few_requests_are_no_rate() -> None:
    assert state(Served(3, 1, 9.0, 0.1, 0)) == "not_yet"


def test_what_is_not_exported_is_no_finding() -> None:
    assert state(Served(600, 0, None, None, None), [Served(600, 0, None, None, None)]) == "good"
    assert served("", "up 1\n") == Served(0, 0, None, None, None)


def test_why_is_in_words() -> None:
    said = judge(Served(600, 30, 0.5, 0.7, 0), [GOOD], Limits(), **DONE)["why"]
    assert said[0].startswith("5.00% of its requests were aborted") and "TTFT p90 is 0.50 s" in said[1]
    assert "coverage is 70%" in said[2]
    assert soak.TTFT in page(1)
