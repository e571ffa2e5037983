"""The README says what the code says."""

from __future__ import annotations

from pathlib import Path

from sglang_fastfill.conditions import CONDITIONS

README = (Path(__file__).resolve().parents[2] / "README.md").read_text()


def test_condition_table_is_the_vocabulary() -> None:
    rows = [line for line in README.splitlines() if line.startswith("| `") and line.split("`")[1] in ids()]
    assert rows == [f"| `{c.id}` | {c.meaning} | {c.fix} |" for c in CONDITIONS]


def ids() -> set[str]:
    return {condition.id for condition in CONDITIONS}


def test_metrics_are_named_as_they_are_exported() -> None:
    source = (Path(__file__).resolve().parents[2] / "patches" / "sglang_fastfill" / "meters.py").read_text()
    for name in ("prefill_attention_calls", "prefill_skips", "prefill_tokens", "prefill_attention_work", "saturated"):
        assert f'"fastfill:{name}"' in source
        assert f"`fastfill:{name}_total`" in README
