"""The JSONL of ``python -m sglang.benchmark.serving --output-details``: one line a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastfill.planning.trace import Trace

if TYPE_CHECKING:
    from fastfill.planning.readers import Lines

NAN = float("nan")


def read(lines: Lines) -> Trace:
    """The last run of a file; its requests arrive as its clients sent them, for it holds no arrival times."""
    from fastfill.planning.readers import CUT, length

    runs, document = 0, None
    for text in lines:
        found = lines.parse(text)
        if found is None:
            continue
        if not isinstance(found, dict) or not isinstance(found.get("input_lens"), list):
            lines.bad("no run of the benchmark with --output-details: input_lens is missing")
        runs += 1
        document = found
    if document is None:
        lines.bad("no whole run of the benchmark")
    trace = Trace("SGLang's benchmark", ["arrival times", "prefix hashes"])
    ins, outs, errors = document["input_lens"], document.get("output_lens"), document.get("errors") or []
    if not isinstance(outs, list) or len(outs) != len(ins):
        lines.bad("output_lens does not fit input_lens")
    failed = 0
    for index, (n_in, n_out) in enumerate(zip(ins, outs, strict=True)):
        if index < len(errors) and errors[index]:
            failed += 1
            continue
        tokens = length(n_in, f"input_lens[{index}]", lines.bad)
        answer = length(n_out, f"output_lens[{index}]", lines.bad)
        if tokens == 0 or answer == 0:
            failed += 1
            continue
        # The benchmark asks for as many tokens as it wants, and sets ignore_eos unless it is told not to.
        trace.add(NAN, tokens, answer, answer, 1)
    trace.clients = _clients(document)
    if runs > 1:
        trace.repairs.append(f"line {lines.number}: the last of {runs} runs is used")
    if failed:
        trace.repairs.append(f"line {lines.number}: {failed} requests that failed, or were empty, are left out")
    if lines.dropped:
        trace.repairs.append(f"line {lines.dropped}: {CUT}")
    return trace


def _clients(document: dict[str, Any]) -> int:
    value = document.get("max_concurrency")
    return value if isinstance(value, int) and value > 0 else 0
