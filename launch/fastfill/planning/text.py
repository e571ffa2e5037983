"""The plan as plain text: what was planned for, a table of candidates, the recommendation."""

from __future__ import annotations

import shlex
import sys

from rich.console import Console
from rich.table import Table

from fastfill.planning.document import PlanDocument, Row
from fastfill.planning.rules import rules

_WIDTH = 150


def show(plan: PlanDocument) -> None:
    """Print to stdout."""
    console = Console(file=sys.stdout, highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else _WIDTH)
    trace = plan.trace
    console.print(
        f"{trace.requests} requests from {trace.source} ({trace.format}), {trace.tokens_in} tokens in, "
        f"{trace.tokens_out} out; SGLang {plan.release}",
        markup=False,
    )
    notes = [f"lacks {what}" for what in trace.lacks] + [f"repaired: {what}" for what in trace.repairs]
    notes += [f"in doubt: {what}" for what in trace.doubts]
    if trace.too_long:
        notes.append(f"{trace.too_long} requests are longer than the context or the KV pool allows: not served")
    notes += [f"assumed: {name}={value}" for name, value in plan.assumptions.items()]
    notes += [f"not modelled: {what}" for what in plan.not_modelled]
    if rules(plan.release).prefix_fires:
        notes.append(
            f"on SGLang {plan.release} a batch with a prefix stays on the path: neither --disable-radix-cache nor "
            "--chunked-prefill-size -1 is needed for it"
        )
    for note in notes:
        console.print(f"  {note}", markup=False)
    note = f" ({plan.time_model.note})" if plan.time_model.note not in plan.time_model.source else ""
    console.print(f"times: {plan.time_model.source}{note}\n", markup=False)
    console.print(table(plan))
    for row in plan.candidates:
        if row.refused:
            console.print(f"  {_name(row)}: {row.refused}", markup=False)
    console.print()
    if plan.recommended is None:
        console.print("no recommendation: no candidate can serve this traffic", markup=False)
        return
    console.print(f"recommended for {plan.objective}: {plan.recommended.why}", markup=False)
    for name, value in plan.recommended.env.items():
        console.print(f"  {name}={shlex.quote(value)}", markup=False)
    console.print(f"  {shlex.join(plan.recommended.flags)}", markup=False)


def table(plan: PlanDocument) -> Table:
    """The candidates that were run, one a row."""
    shown = Table(box=None, pad_edge=False)
    for title in ("chunk", "max prefill", "radix", "path"):
        shown.add_column(title, justify="right")
    for title in (
        "work on path",
        "tokens",
        "TTFT p50",
        "p99 ms",
        "ITL p50",
        "p99 ms",
        "tokens/s",
        "largest pass",
        "mem",
    ):
        shown.add_column(title, justify="right")
    shown.add_column("off the path by")
    best = plan.recommended.flags[:4] if plan.recommended else []
    for row in plan.candidates:
        if row.coverage is None or row.ttft_ms is None or row.itl_ms is None:
            continue
        mine = ["--chunked-prefill-size", str(row.chunked_prefill_size or -1)]
        mine += ["--max-prefill-tokens", str(row.max_prefill_tokens)]
        reasons = ", ".join(f"{name} {share:.1%}" for name, share in row.coverage.reasons.items())
        shown.add_row(
            str(row.chunked_prefill_size or "off"),
            str(row.max_prefill_tokens),
            "on" if row.radix else "off",
            "on" if row.path else "off",
            f"{row.coverage.attention_work:.1%}",
            f"{row.coverage.tokens:.1%}",
            _number(row.ttft_ms.p50),
            _number(row.ttft_ms.p99),
            _number(row.itl_ms.p50),
            _number(row.itl_ms.p99),
            _number(row.throughput_tps),
            str(row.peak_tokens),
            f"{row.mem_fraction_static:.3f}" if row.mem_fraction_static is not None else "",
            reasons,
            style="bold" if mine == best and not row.refused else None,
        )
    return shown


def _name(row: Row) -> str:
    chunk = row.chunked_prefill_size or -1
    radix = "on" if row.radix else "off"
    return f"chunk={chunk},max_prefill={row.max_prefill_tokens},radix={radix}"


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"
