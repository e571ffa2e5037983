"""The plan as one static page: plots as inline SVG, no script, nothing loaded from anywhere."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

from jinja2 import Environment, select_autoescape

from fastfill.errors import NotReadyError, UsageError
from fastfill.planning.document import PlanDocument
from fastfill.planning.evaluate import Span, Tried

FAST, SLOW = "#1b7f4d", "#c2410c"
_COLOURS = {"prefix_chunk": SLOW, "prefix_radix": "#a21caf", "prefix_mixed": "#ca8a04", "batch_too_large": "#1d4ed8"}
_OTHER = "#78716c"
_SHOWN_PASSES = 80
_WIDE: dict[str, Any] = {"color": "#93c5fd", "linewidth": 5, "markersize": 9}

_TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>fastfill plan: {{ plan.trace.source }}</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 70em; padding: 0 1em; color: #1c1917; }
table { border-collapse: collapse; font-size: 13px; } td, th { padding: 2px 10px; text-align: right; }
th { border-bottom: 1px solid #a8a29e; } tr.best { background: #ecfdf5; font-weight: 600; }
code { background: #f5f5f4; padding: 1px 4px; } svg { width: 100%; height: auto; } .note { color: #57534e; }
</style>
</head>
<body>
<h1>{{ plan.trace.source }}</h1>
<p>{{ plan.trace.requests }} requests ({{ plan.trace.format }}), {{ plan.trace.tokens_in }} tokens in,
{{ plan.trace.tokens_out }} out; SGLang {{ plan.release }}. Times: {{ plan.time_model.source }}.</p>
{% if plan.recommended %}
<p><strong>Recommended for {{ plan.objective }}:</strong> {{ plan.recommended.why }}.</p>
<p><code>{{ plan.recommended.flags | join(" ") }}</code></p>
{% else %}
<p><strong>No candidate can serve this traffic.</strong></p>
{% endif %}
<ul class="note">
{% for what in plan.trace.lacks %}<li>the trace lacks {{ what }}</li>{% endfor %}
{% for what in plan.trace.repairs %}<li>repaired: {{ what }}</li>{% endfor %}
{% for what in plan.trace.doubts %}<li>in doubt: {{ what }}</li>{% endfor %}
{% for name, value in plan.assumptions.items() %}<li>assumed: {{ name }}={{ value }}</li>{% endfor %}
{% for what in plan.not_modelled %}<li>not modelled: {{ what }}</li>{% endfor %}
{% if plan.trace.too_long %}<li>{{ plan.trace.too_long }} requests are too long to be served</li>{% endif %}
</ul>
{% for title, picture in pictures %}
<h2>{{ title }}</h2>
{{ picture }}
{% endfor %}
<h2>Candidates</h2>
<table>
<tr><th>chunk</th><th>max prefill</th><th>radix</th><th>path</th><th>work on path</th><th>TTFT p50 ms</th>
<th>TTFT p99 ms</th><th>ITL p99 ms</th><th>tokens/s</th><th>largest pass</th><th>memory fraction</th></tr>
{% for row in plan.candidates if row.coverage %}
<tr{% if loop.index0 == best %} class="best"{% endif %}><td>{{ row.chunked_prefill_size or "off" }}</td>
<td>{{ row.max_prefill_tokens }}</td>
<td>{{ "on" if row.radix else "off" }}</td><td>{{ "on" if row.path else "off" }}</td>
<td>{{ "%.1f %%" | format(100 * row.coverage.attention_work) }}</td>
<td>{{ "%.0f" | format(row.ttft_ms.p50 or 0) }}</td><td>{{ "%.0f" | format(row.ttft_ms.p99 or 0) }}</td>
<td>{{ "%.1f" | format(row.itl_ms.p99 or 0) }}</td><td>{{ "%.0f" | format(row.throughput_tps or 0) }}</td>
<td>{{ row.peak_tokens }}</td><td>{{ row.mem_fraction_static }}</td></tr>
{% endfor %}
</table>
</body>
</html>
"""


def write(file: Path, plan: PlanDocument, tried: list[Tried], chosen: Tried | None) -> None:
    """Write the page.

    Raises:
        NotReadyError: matplotlib is not installed.
        UsageError: The file cannot be written.
    """
    try:
        import matplotlib
    except ImportError:
        raise NotReadyError(
            "the page's plots need matplotlib", where="--html", next_step="pip install 'fastfill[plots]'"
        ) from None
    matplotlib.use("svg")
    ran = [one for one in tried if one.outcome is not None]
    pictures = [("Coverage and time to the first token, by chunk size", _chunks(ran))]
    if chosen is not None:
        pictures.append((f"Prefill passes with {chosen.candidate.name()}", _timeline(chosen.spans)))
    worst = min(ran, key=lambda one: one.outcome.coverage.of_work if one.outcome else 0.0, default=None)
    if worst is not None and worst is not chosen:
        pictures.append((f"Prefill passes with {worst.candidate.name()}", _timeline(worst.spans)))
    pictures.append(("What keeps attention work off the path", _reasons(ran)))
    environment = Environment(autoescape=select_autoescape(default=True, default_for_string=True))
    from markupsafe import Markup

    text = environment.from_string(_TEMPLATE).render(
        plan=plan,
        pictures=[(title, Markup(picture)) for title, picture in pictures],  # noqa: S704 (made here)
        best=ran.index(chosen) if chosen in ran else -1,
    )
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"the page cannot be written: {error.strerror}", where=str(file)) from None


def _figure(height: float) -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(10, height), layout="constrained")


def _svg(figure: Any) -> str:
    """The drawing without the XML prologue, whose entities would name an address."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return re.sub(r"^.*?(?=<svg)", "", buffer.getvalue(), flags=re.DOTALL)


def _chunks(ran: list[Tried]) -> str:
    figure = _figure(3.6)
    shown = [one for one in ran if one.candidate.path]
    left, right = figure.subplots(1, 2)
    for cached in sorted({one.candidate.radix for one in shown}):
        rows = sorted(
            (one for one in shown if one.candidate.radix is cached),
            key=lambda one: (one.candidate.chunk < 0, *_size(one)),
        )
        names = [
            f"off/{one.candidate.max_prefill}" if one.candidate.chunk < 0 else str(one.candidate.chunk) for one in rows
        ]
        label = "radix on" if cached else "radix off"
        # Where both give the same, the narrow line lies visibly on the wide one.
        look: dict[str, Any] = {"color": _OTHER, "linewidth": 1.2, "markersize": 3.5} if cached else _WIDE
        left.plot(names, [100 * one.outcome.coverage.of_work for one in rows if one.outcome], "o-", label=label, **look)
        for share, style in ((0.5, "o--"), (0.99, "o-")):
            times = [1e3 * (one.ttft(share) or 0.0) for one in rows]
            right.plot(names, times, style, label=f"{label}, p{share * 100:.0f}", **look)
    left.set(ylabel="attention work on the path, %", ylim=(-2, 102), xlabel="chunk (off/max-prefill-tokens)")
    right.set(ylabel="time to the first token, ms", xlabel="chunk (off/max-prefill-tokens)")
    right.set_ylim(bottom=0)
    for axes in (left, right):
        axes.tick_params(axis="x", rotation=45)
        axes.legend()
        axes.grid(alpha=0.3)
    return _svg(figure)


def _size(one: Tried) -> tuple[int, int]:
    return one.candidate.chunk, one.candidate.max_prefill


def _timeline(spans: list[Span]) -> str:
    figure = _figure(2.0)
    axes = figure.subplots()
    start = spans[0].began if spans else 0.0
    spans = spans[:_SHOWN_PASSES]
    from matplotlib.patches import Patch

    for colour, wanted in (
        (FAST, [span for span in spans if not span.reason]),
        (SLOW, [span for span in spans if span.reason]),
    ):
        axes.bar(
            [span.began - start for span in wanted],
            [span.tokens for span in wanted],
            width=[span.seconds for span in wanted],
            align="edge",
            color=colour,
            edgecolor="white",
            linewidth=0.3,
        )
    axes.set(xlabel=f"seconds, to the end of pass {len(spans)}", ylabel="tokens of the pass")
    handles = [Patch(color=FAST, label="fast path"), Patch(color=SLOW, label="fallback")]
    axes.legend(handles=handles, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, fontsize=8, frameon=False)
    return _svg(figure)


def _reasons(ran: list[Tried]) -> str:
    figure = _figure(0.6 + 0.32 * max(len(ran), 2))
    axes = figure.subplots()
    names = [one.candidate.name() for one in ran]
    reasons = sorted({reason for one in ran if one.outcome for reason in one.outcome.coverage.reasons()})
    left = [0.0] * len(ran)
    for reason in reasons:
        widths = [100 * one.outcome.coverage.reasons().get(reason, 0.0) for one in ran if one.outcome]
        axes.barh(names, widths, left=left, color=_COLOURS.get(reason, _OTHER), label=reason)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    rest = [100.0 - done for done in left]
    axes.barh(names, rest, left=left, color=FAST, label="fast path")
    axes.set(xlabel="share of the attention work, %", xlim=(0, 100))
    axes.invert_yaxis()
    axes.margins(y=0.01)
    axes.tick_params(axis="y", labelsize=8)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(reasons) + 1, fontsize=8, frameon=False)
    return _svg(figure)
