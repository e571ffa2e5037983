"""Files with one line an event: whole lines, the newest last, of bounded size."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sglang_fastfill import journal, state


def events(file: Path) -> list[int]:
    return [json.loads(line)["event"] for line in file.read_text().splitlines()]


def test_a_full_file_takes_the_place_of_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "LONGEST", 100)
    file = tmp_path / "events.jsonl"
    for number in range(100):
        journal.append(file, {"event": number})
        assert file.stat().st_size < 120
    assert {path.name for path in tmp_path.iterdir()} == {"events.jsonl", "events.1.jsonl"}
    kept = events(journal.before(file)) + events(file)
    assert kept == list(range(kept[0], 100)) and len(kept) >= 7


def test_every_throw_of_the_switch_is_in_the_audit_log_and_no_flood_fills_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "LONGEST", 5000)
    for number in range(200):
        state.write_path(tmp_path, "off" if number % 2 else "on", f"caller {number}", "why " * 1000)
    size = sum(path.stat().st_size for path in tmp_path.glob("audit*.jsonl"))
    assert 5000 <= size < 2 * (5000 + 2 * state.LONGEST_WORD)
    assert json.loads((tmp_path / "audit.jsonl").read_text().splitlines()[-1])["who"] == "caller 199"
    assert state.read_path(tmp_path)["path"] == "off"
