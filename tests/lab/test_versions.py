"""``fastfill explain`` against what the real server of a release then does: predicted beside observed.

Here 0.5.16, patched and not, and 0.5.23; every release with every model in ``make sweep``, whose results are held to
the same in tests/unit/test_results.py.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ports import free_port

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
from observe import Case, Row, run_all, table

CASES = [
    Case("sglang-0.5.16"),
    Case("sglang-0.5.16-unpatched"),
    Case("sglang-0.5.23"),
    Case("sglang-0.5.23", "dense-gqa6"),
    Case("sglang-0.5.23", "dense-hd128"),
    Case("sglang-0.5.23", kv="auto"),
]
"""What keeps a model off 0.5.16's path is in test_prove_live.py."""

PROVEN = [case for case in CASES if case.stack != "sglang-0.5.16" and case.model != "dense-hd128"]
"""The default stack is proven in test_prove_live.py; each proof takes several seconds."""


@pytest.fixture(scope="module")
def rows() -> dict[Case, Row]:
    """Two servers at a time: each keeps one core busy while it starts."""
    return dict(zip(CASES, run_all(CASES, [free_port(), free_port()], PROVEN), strict=True))


def test_predicted_beside_observed(rows: dict[Case, Row], capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print("\n" + table(list(rows.values())))
    assert {row.predicted for row in rows.values()} == {"conditional", "never"}, "no patched stack lets a prefill crash"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_server_does_what_explain_says(rows: dict[Case, Row], case: Case) -> None:
    row = rows[case]
    assert row.agrees, row
    if row.observed.verdict != "crashes":
        fired = row.observed.verdict in ("fires", "conditional")
        assert any(name == "asm/256" for name in row.observed.kernels) == fired
        if case in PROVEN:
            assert row.proof["verdict"] == ("FIRED" if fired else "NOT_FIRED")
        assert row.observed.delta["fresh"] < 0.2


def test_what_takes_a_prefix_off_the_path(rows: dict[Case, Row]) -> None:
    """Before 0.5.19 a prompt's later chunks and a cached prefix leave the path; from then on they stay."""
    older = rows[Case("sglang-0.5.16")].observed
    newer = rows[Case("sglang-0.5.23")].observed
    assert older.passes["chunks"] == [True, False, False] and older.passes["cached prefix"] == [False]
    assert newer.passes["chunks"] == [True, True, True] and newer.passes["cached prefix"] == [True]
    assert older.passes["fallback asked for"] == newer.passes["fallback asked for"] == [False]
