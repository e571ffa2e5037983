"""Traces: each format, what it lacks, and every bad line by its number."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from fastfill.errors import UsageError
from fastfill.planning import readers, workload
from fastfill.planning.trace import Trace

ROWS = [
    {"timestamp": 0, "input_length": 1000, "output_length": 20, "hash_ids": [7, 8]},
    {"timestamp": 250, "input_length": 1100, "output_length": 5, "hash_ids": [7, 8, 9]},
    {"timestamp": 1000, "input_length": 600, "output_length": 1, "hash_ids": [7, 11]},
]


def written(folder: Path, rows: list[Any], end: str = "\n") -> Path:
    file = folder / "trace.jsonl"
    file.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows) + end)
    return file


def changed(at: int, **values: Any) -> list[dict[str, Any]]:
    rows = [dict(row) for row in ROWS]
    rows[at] |= values
    return [{key: value for key, value in row.items() if value != "gone"} for row in rows]


def test_mooncake(tmp_path: Path) -> None:
    trace = readers.read(written(tmp_path, ROWS))
    assert (list(trace.arrival), list(trace.n_in), list(trace.n_out)) == (
        [0.0, 0.25, 1.0],
        [1000, 1100, 600],
        [20, 5, 1],
    )
    assert trace.lacks == ["client's max_new_tokens", "whether clients set ignore_eos"]
    assert not trace.repairs


def test_equal_hashes_are_equal_pages_and_others_are_not(tmp_path: Path) -> None:
    trace = readers.read(written(tmp_path, ROWS))
    one, two, three = (trace.key(number, 16) for number in range(3))
    assert [len(key) // 8 for key in (one, two, three)] == [62, 68, 37]
    assert two.startswith(one)
    assert (three[: 32 * 8], three[32 * 8 :][:8] != one[32 * 8 :][:8]) == (one[: 32 * 8], True)


@pytest.mark.parametrize(
    ("rows", "what", "line"),
    [
        (changed(1, input_length=-5), "input_length is negative", 2),
        (changed(1, input_length="gone"), "input_length is missing", 2),
        (changed(2, output_length="gone"), "output_length is missing", 3),
        (changed(0, input_length=0), "input_length is 0", 1),
        (changed(1, input_length=10.5), "no whole number", 2),
        (changed(1, input_length=True), "no whole number", 2),
        (changed(2, timestamp="gone"), "timestamp is missing", 3),
        (changed(1, timestamp="soon"), "timestamp is no number", 2),
        (changed(1, timestamp=-1), "timestamp is negative", 2),
        (changed(1, hash_ids=[1, 2, 3, 4]), "4 hash_ids for 1100 tokens", 2),
        (changed(1, hash_ids=["a"]), "hash_ids is no list of whole numbers", 2),
        ([ROWS[0], "{oops", ROWS[1]], "not valid JSON", 2),
        ([ROWS[0], "[1]"], "not an object", 2),
        ([{**ROWS[0], "timestamp": 1.7e12}, {**ROWS[1], "timestamp": 1.7e9}], "time units are mixed", 2),
        ([{**ROWS[0], "timestamp": 60000}, {**ROWS[1], "timestamp": 61}], "time units are mixed", 2),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, rows: list[Any], what: str, line: int) -> None:
    with pytest.raises(UsageError, match=what) as caught:
        readers.read(written(tmp_path, rows))
    assert caught.value.where.endswith(f"line {line}")


def at(*times: float) -> list[dict[str, Any]]:
    return [{"timestamp": one, "input_length": 100, "output_length": 1} for one in times]


MS = [1000.0 * n for n in range(1, 41)]
S = [1.0 * n for n in range(41, 61)]


@pytest.mark.parametrize(
    ("times", "line"),
    [
        ([*MS, *S], 41),
        ([*MS, 41.5, 42_000, 43_000], 41),
        ([one for pair in zip(MS[30:], S, strict=False) for one in pair], 2),
        ([*MS, 40.5], 41),
    ],
    ids=["milliseconds, then seconds", "one line in seconds", "two clocks in turn", "the last line in seconds"],
)
def test_mixed_units_are_found_where_nothing_else_explains_them(tmp_path: Path, times: list[float], line: int) -> None:
    with pytest.raises(UsageError, match="time units are mixed") as caught:
        readers.read(written(tmp_path, at(*times)))
    assert caught.value.where.endswith(f"line {line}")


@pytest.mark.parametrize(
    "times",
    [
        [*MS, *(one - 980 for one in MS)],
        [0, 0, 1, 2, 2, 3000, 3000, 6000, 6001, 9000],
        [*MS, *(one + 0.5 for one in reversed(MS))],
    ],
    ids=["two files, one after the other", "a burst, then gaps", "backwards"],
)
def test_what_only_looks_like_mixed_units_is_read(tmp_path: Path, times: list[float]) -> None:
    trace = readers.read(written(tmp_path, at(*times)))
    assert len(trace) == len(times)
    assert list(trace.arrival) == pytest.approx([one / 1000 for one in times])


def test_a_jump_and_an_impossible_rate_are_doubts(tmp_path: Path) -> None:
    (doubt,) = readers.read(
        written(tmp_path, at(*(n + 1 for n in range(9)), *(9500 + 900 * n for n in range(9))))
    ).doubts
    assert doubt.startswith("line 10: the time jumps from 9 to 9500")
    busy = [{**row, "input_length": 50_000} for row in at(*S)]
    (doubt,) = readers.read(written(tmp_path, busy), unit="ms").doubts
    assert "are the timestamps seconds? (--assume time_unit=s)" in doubt
    assert readers.read(written(tmp_path, busy), unit="s").doubts == []
    (doubt,) = readers.read(written(tmp_path, at(*MS)), unit="s").doubts
    assert "are the timestamps milliseconds?" in doubt


@pytest.mark.parametrize(("base", "unit", "says"), [(1.7e12, "s", "milliseconds"), (1.7e9, "ms", "seconds")])
def test_the_time_since_1970_tells_its_unit(tmp_path: Path, base: float, unit: str, says: str) -> None:
    file = written(tmp_path, at(base, base + 1, base + 2))
    with pytest.raises(UsageError, match=f"time_unit={unit}, but the timestamps are {says} since 1970"):
        readers.read(file, unit=unit)
    assert readers.read(file, unit="ms" if unit == "s" else "s").timed


@pytest.mark.parametrize(
    ("rows", "end", "repair", "requests"),
    [
        (changed(1, output_length=0), "\n", "line 2: output_length 0 counts as 1", 3),
        ([ROWS[2], ROWS[0], ROWS[1]], "\n", "line 2: not in the order of time: sorted", 3),
        ([*ROWS, '{"timestamp": 5, "inp'], "", "line 4: the last line was cut off: left out", 3),
        (changed(1, hash_ids=[7]), "\n", "line 2: fewer hash_ids than the prompt has blocks", 3),
    ],
)
def test_repairs_are_stated(tmp_path: Path, rows: list[Any], end: str, repair: str, requests: int) -> None:
    trace = readers.read(written(tmp_path, rows, end))
    assert trace.repairs[0].startswith(repair)
    assert len(trace) == requests
    arrivals = [
        r.arrival for r in trace.requests(max_new=0, ignore_eos=False, page=16, keyed=True, order=trace.in_order())
    ]
    assert arrivals == sorted(arrivals)


def test_a_whole_last_line_needs_no_newline(tmp_path: Path) -> None:
    trace = readers.read(written(tmp_path, ROWS, ""))
    assert (len(trace), trace.repairs) == (3, [])


def test_gzip_and_a_gzip_that_was_cut(tmp_path: Path) -> None:
    packed = gzip.compress("".join(json.dumps(row) + "\n" for row in ROWS * 200).encode())
    file = tmp_path / "trace.jsonl.gz"
    file.write_bytes(packed)
    assert len(readers.read(file)) == 600
    file.write_bytes(packed[:-20])
    with pytest.raises(UsageError, match="the gzip file ends too early"):
        readers.read(file)


@pytest.mark.parametrize("text", ["", "\n\n", "hello\n", '{"a": 1}\n', '{"mean_ttft_ms": 5}\n'])
def test_no_trace_at_all(tmp_path: Path, text: str) -> None:
    file = tmp_path / "trace"
    file.write_text(text)
    with pytest.raises(UsageError):
        readers.read(file)


def test_without_hashes(tmp_path: Path) -> None:
    trace = readers.read(written(tmp_path, [{k: v for k, v in row.items() if k != "hash_ids"} for row in ROWS]))
    assert trace.block == 0
    assert "prefix hashes" in trace.lacks


def test_the_benchmark(tmp_path: Path) -> None:
    run = {
        "input_lens": [100, 200, 300],
        "output_lens": [10, 0, 30],
        "errors": ["", "refused", ""],
        "generated_texts": ["secret words", "", "more of them"],
        "max_concurrency": 4,
    }
    trace = readers.read(written(tmp_path, [{**run, "input_lens": [1, 1, 1]}, run]))
    assert (list(trace.n_in), list(trace.n_out), trace.clients, trace.timed) == ([100, 300], [10, 30], 4, False)
    assert list(trace.ignore_eos) == [1, 1]
    assert [repair.split(":")[0] for repair in trace.repairs] == ["line 2", "line 2"]
    assert "arrival times" in trace.lacks


JSON_LOG = [
    '[2026-01-01 10:00:00] {"timestamp": "2026-01-01T10:00:00.500000", "event": "request.received", "rid": "a"}',
    "[2026-01-01 10:00:01] INFO something else",
    '[2026-01-01 10:00:02] {"timestamp": "2026-01-01T10:00:02.250000", "event": "request.finished", "rid": "b", "obj": '
    '{"sampling_params": {"max_new_tokens": 64, "ignore_eos": true}}, "out": {"meta_info": {"prompt_tokens": 40, '
    '"completion_tokens": 8, "e2e_latency": 2.0}}}',
    '[2026-01-01 10:00:03] {"timestamp": "2026-01-01T10:00:03.000000", "event": "request.finished", "rid": "a", "obj": '
    '{"text": "secret words"}, "out": {"text": "more", "meta_info": {"prompt_tokens": 50, "completion_tokens": 9}}}',
]
TEXT_LOG = [
    "[2026-01-01 10:00:02] Receive: obj=GenerateReqInput(rid='a', text='secret words')",
    "[2026-01-01 10:00:03] Finish: obj=GenerateReqInput(rid='a', text='it says prompt_tokens', sampling_params="
    "{'max_new_tokens': 64, 'temperature': 0}), out={'text': 'more', 'meta_info': {'id': 'a', 'finish_reason': "
    "{'type': 'length'}, 'prompt_tokens': 50, 'completion_tokens': 9, 'cached_tokens': 0, 'e2e_latency': 0.9}}",
]


def test_the_request_log_as_json(tmp_path: Path) -> None:
    trace = readers.read(written(tmp_path, JSON_LOG))
    assert (list(trace.n_in), list(trace.max_new), list(trace.ignore_eos)) == ([40, 50], [64, -1], [1, -1])
    assert trace.arrival[1] - trace.arrival[0] == pytest.approx(0.25)
    assert any("max_new_tokens" in what for what in trace.lacks)
    assert trace.repairs == ["1 lines that are about no request are left out"]


def test_the_request_log_as_text(tmp_path: Path) -> None:
    trace = readers.read(written(tmp_path, TEXT_LOG))
    assert (list(trace.n_in), list(trace.n_out), list(trace.max_new), list(trace.ignore_eos)) == ([50], [9], [64], [0])
    assert "arrival times finer than a second" in trace.lacks


def test_a_request_line_that_is_cut(tmp_path: Path) -> None:
    trace = readers.read(written(tmp_path, [*TEXT_LOG, TEXT_LOG[1][:200]], ""))
    assert trace.repairs == ["line 3: the last line was cut off: left out"]
    with pytest.raises(UsageError, match="cannot be read") as caught:
        readers.read(written(tmp_path, [TEXT_LOG[1][:200], *TEXT_LOG]))
    assert caught.value.where.endswith("line 1")


def _texts(trace: Trace) -> str:
    return repr([getattr(trace, name) for name in Trace.__slots__])


@pytest.mark.parametrize("rows", [JSON_LOG, TEXT_LOG])
def test_no_prompt_is_kept(tmp_path: Path, rows: list[str]) -> None:
    assert "secret" not in _texts(readers.read(written(tmp_path, rows)))


def test_a_workload() -> None:
    trace = workload.parse("isl=1000,osl=20,conc=3,cached=0.5,requests=12")
    assert (len(trace), trace.clients, set(trace.n_in)) == (12, 3, {1000})
    one, two = trace.key(0, 16), trace.key(1, 16)
    assert one[: 28 * 8] == two[: 28 * 8]
    assert one[28 * 8 :][:8] != two[28 * 8 :][:8]


@pytest.mark.parametrize("text", ["", "isl=5", "isl=0,osl=1,conc=1", "isl=a,osl=1,conc=1", "isl=9,osl=1,conc=1,x=2",
                                  "isl=9,osl=1,conc=1,cached=1", "isl=9.5,osl=1,conc=1"])  # fmt: skip
def test_a_bad_workload(text: str) -> None:
    with pytest.raises(UsageError):
        workload.parse(text)
