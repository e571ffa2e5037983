"""The time model: fits, calibration documents, published cells."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from cli_run import fastfill
from hypothesis import given
from hypothesis import strategies as st

from fastfill.errors import UsageError
from fastfill.planning import calibrate, figures, published
from fastfill.planning.assumptions import Assumptions
from fastfill.planning.candidate import Candidate
from fastfill.planning.constants import Decode, Prefill, alone, fitted
from fastfill.planning.evaluate import Tried, recommend
from fastfill.planning.fit import fit
from fastfill.planning.simulate import Outcome, Refused
from fastfill.planning.spread import Spread
from fastfill.planning.times import Times


def test_fit_finds_what_made_the_numbers() -> None:
    rows = [(1.0, n, n * n / 2) for n in (64, 128, 256, 1024, 4096, 16384)]
    wanted = (0.004, 2e-5, 3e-9)
    found = fit(rows, [sum(a * b for a, b in zip(row, wanted, strict=True)) for row in rows])
    assert found == pytest.approx(wanted, rel=1e-6)


def test_fit_gives_nothing_negative() -> None:
    rows = [(1.0, n, n * n / 2) for n in (64, 128, 256, 512)]
    found = fit(rows, [0.01, 0.0102, 0.0105, 0.011])
    assert min(found) >= 0
    assert fit([(1.0, 0.0)], [0.5]) == [0.5, 0.0]


def test_fit_leaves_out_what_no_measurement_can_tell() -> None:
    """The second column is twice the first and the third is their sum: only the first is known."""
    assert fit([(1.0, 2.0, 3.0), (2.0, 4.0, 6.0)], [0.5, 1.0]) == pytest.approx([0.5, 0.0, 0.0])
    rows = [(1.0, 4.0, 4.0 * 100), (1.0, 4.0, 4.0 * 900)]
    assert fit(rows, [0.02 + 4e-4, 0.02 + 36e-4]) == pytest.approx([0.02, 0.0, 1e-6])


def measured(both: bool) -> calibrate.Measured:
    real = Times(pass_=0.012, token=4e-5, pair_fast=1e-8, pair_slow=3e-8, decode=0.010, row=0.002, cached=1e-7)
    found = calibrate.Measured()
    for size in (64, 256, 1024, 4096):
        for fast in (True, False) if both else (True,):
            pairs = size * size / 2
            seconds = 0.02 + 4e-5 * size + (1e-8 if fast else 3e-8) * pairs
            found.prefills.append(alone(size, float(fast), seconds))
    for rows in (1, 2, 4, 8):
        for context in (64, 1024):
            seconds = real.decode + real.row * rows + real.cached * rows * context
            found.decodes.append(Decode(rows, rows * context, seconds))
    return found


def test_a_calibration_is_read_back(tmp_path: Path) -> None:
    document = calibrate.document(measured(True), "lab", "http://x", "0.5.16", blocking=False)
    file = tmp_path / "constants.json"
    file.write_text(json.dumps(document))
    found = figures.calibrated(file)
    assert found.measured
    assert found.times.token == pytest.approx(4e-5, rel=1e-3)
    assert found.times.pair_slow == pytest.approx(3e-8, rel=1e-3)
    assert found.times.pair_fast == pytest.approx(1e-8, rel=1e-3)
    assert found.times.row == pytest.approx(0.002, rel=1e-3)
    assert found.times.pass_ + found.times.answer == pytest.approx(0.02, rel=1e-3)
    assert document["fit"]["worst_error"] < 0.01


def test_short_prompts_together_tell_linear_work_from_attention() -> None:
    """On a CPU nearly all is linear: a few noisy lengths alone would put it down to attention."""
    real = Times(pass_=0.06, token=1e-3, pair_fast=1.6e-7, pair_slow=1.6e-7, decode=0.01, row=0.01, cached=0.0)
    noisy = [(64, 1, 1.1), (128, 1, 0.85), (256, 1, 0.9), (512, 1, 1.1), (256, 4, 1.05), (512, 8, 0.95), (512, 4, 1.0)]
    prefills = []
    for tokens, prompts, noise in noisy:
        pairs = tokens**2 / 2 / prompts
        seconds = noise * (0.05 + real.pass_ + real.token * tokens + real.pair_fast * pairs)
        prefills.append(Prefill(tokens, pairs, 0.0, seconds))
        if prompts == 1:
            prefills.append(Prefill(tokens, 0.0, pairs, seconds))
    for tokens, noise in ((1000, 1.1), (980, 0.9), (400, 1.0), (60, 1.05)):
        seconds = noise * (real.pass_ + real.token * tokens + real.pair_slow * tokens**2 / 4)
        prefills.append(Prefill(tokens, 0.0, tokens**2 / 4, seconds, client=False))
    found = fitted(prefills, [Decode(rows, 0, 0.01 + 0.01 * rows) for rows in (1, 4, 16)], blocking=False).seconds
    assert found["pass"] == pytest.approx(0.06, rel=0.4)
    for tokens, prompts in ((1000, 6), (1000, 1), (300, 3)):
        wanted = real.pass_ + real.token * tokens + real.pair_fast * tokens**2 / 2 / prompts
        told = found["pass"] + found["token"] * tokens + found["pair_fast"] * tokens**2 / 2 / prompts
        assert told == pytest.approx(wanted, rel=0.25), (tokens, prompts)


def test_a_rate_that_was_not_seen_is_the_published_one_and_says_so() -> None:
    document = calibrate.document(measured(False), "lab", "http://x", "0.5.16", blocking=False)
    assert document["seconds"]["pair_slow"] == pytest.approx(3.5 * document["seconds"]["pair_fast"])
    assert "published ratio" in document["notes"][0]


@pytest.mark.parametrize("text", ["", "{}", '{"schema": "other"}', '{"schema": "fastfill.plan_calibration/1"}'])
def test_what_is_no_calibration(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(UsageError, match="no calibration"):
        figures.calibrated(tmp_path / "x.json")


def test_published_constants_say_where_they_are_from() -> None:
    assumptions = Assumptions([])
    found = published.times(assumptions)
    assert not found.measured
    assert "not measured on MI350X" in found.source
    assert found.times.pair_slow == pytest.approx(3.5 * found.times.pair_fast)
    assert {"linear_share", "bandwidth_share", "pass_ms", "decode_ms", "active_parameters"} <= set(assumptions.used)


def test_published_cells_beside_the_model() -> None:
    done = fastfill("plan", "published", "--json")
    document = json.loads(done.out)
    assert done.code == 0
    assert len(document["cells"]) == 7
    assert all(cell["modelled"] > 0 and cell["source"] for cell in document["cells"])
    text = fastfill("plan", "published").out
    assert text.count("DISAGREE") == sum(not cell["agrees"] for cell in document["cells"])


def test_who_turns_prompts_away_is_not_the_fastest() -> None:
    """A pool that is too small for the longest prompts leaves the easy ones, and answers those soon."""

    def tried(chunk: int, ttft: float, refused: int) -> Tried:
        outcome = Outcome(requests=10 - refused, seconds=1.0)
        outcome.ttft.extend([ttft] * (10 - refused))
        outcome.refused.extend(Refused(number, 90_000) for number in range(refused))
        return Tried(Candidate(chunk, 16384, False, True), outcome)

    chosen, why = recommend([tried(-1, 0.1, 3), tried(8192, 0.5, 0), tried(16384, 0.7, 0)], "ttft_p99")
    assert chosen is not None and chosen.candidate.chunk == 8192 and "of 2 candidates" in why
    chosen, _ = recommend([tried(-1, 0.1, 3), tried(8192, 0.5, 3)], "ttft_p99")
    assert chosen is not None and chosen.candidate.chunk == -1, "what no candidate can serve decides nothing"


def test_decode_steps_sum_up() -> None:
    times = Times(pass_=0, token=0, pair_fast=0, pair_slow=0, decode=0.01, row=0.001, cached=1e-6)
    one_by_one = sum(0.01 + 0.001 * 3 + 1e-6 * (300 + 3 * step) for step in range(7))
    assert times.steps(3, 300, 7) == pytest.approx(one_by_one)


@given(
    st.integers(1, 300),
    st.integers(0, 1 << 22),
    st.floats(0, 1000),
    st.sampled_from([(0.01, 1e-4, 1e-8), (0.01, 0.0, 0.0), (1e-5, 0.0, 1e-6), (0.008, 5e-5, 1e-9)]),
)
def test_the_steps_within_a_time_are_the_most_that_take_less(
    rows: int, more: int, seconds: float, constants: tuple[float, float, float]
) -> None:
    """Each sequence has a token in the cache at least, its own."""
    context = rows + more
    decode, row, cached = constants
    times = Times(pass_=0, token=0, pair_fast=0, pair_slow=0, decode=decode, row=row, cached=cached)
    steps = times.within(rows, context, seconds)
    assert steps == 0 or times.steps(rows, context, steps) < seconds
    assert times.steps(rows, context, steps + 1) >= seconds


def test_steps_that_take_no_time_never_end() -> None:
    times = Times(pass_=0, token=0, pair_fast=0, pair_slow=0, decode=0, row=0, cached=0)
    assert times.within(3, 300, 1.0) > 1_000_000_000
    assert times.within(3, 300, 0.0) == times.within(3, 300, -1.0) == 0


def test_percentiles_are_within_their_bins() -> None:
    spread, values = Spread(), sorted(random.Random(3).expovariate(20) + 1e-4 for _ in range(5000))
    for value in values:
        spread.add(value)
    for share in (0.5, 0.9, 0.99):
        assert spread.at(share) == pytest.approx(values[int(share * 5000)], rel=0.02)
    assert Spread().at(0.5) is None
