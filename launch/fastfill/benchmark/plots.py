"""The report's plots, as SVG text: matplotlib, imported when a report is written."""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING, Any

from fastfill.benchmark.document import ArmPart, BenchDocument

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {"A": "#5b6770", "B": "#c8102e"}
_GOOD, _STOPPED = "#2e7d32", ("#ef6c00", "#6a1b9a", "#0277bd", "#ad1457", "#827717", "#4e342e")


def all_of(document: BenchDocument) -> dict[str, str]:
    """Every plot by its title."""
    names = {"ratio": _ratio, "ttft": _ttft, "coverage": _coverage, "timeline": _timeline}
    return {name: _svg(draw(document), name) for name, draw in names.items()}


def _figure(rows: int) -> tuple[Figure, Any]:
    # Not pyplot: it would choose a window system, and keep every figure.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, max(2.2, 1.1 + 0.55 * rows)), layout="constrained")
    return figure, figure.subplots()


def _svg(figure: Figure, name: str) -> str:
    import matplotlib

    text = io.StringIO()
    # Equal data gives an equal file; letters become shapes, so that no font is needed.
    with matplotlib.rc_context({"svg.hashsalt": f"fastfill-{name}", "svg.fonttype": "path"}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    svg = text.getvalue()
    return svg[svg.index("<svg") :]


def _ratio(document: BenchDocument) -> Figure:
    figure, axes = _figure(len(document.cells))
    metric = document.provenance.metric
    for row, cell in enumerate(document.cells):
        if cell.noise is not None:
            axes.barh(row, cell.noise.high - cell.noise.low, left=cell.noise.low, height=0.7, color="#dfe3e6", zorder=0)
        if cell.blocks:
            axes.plot([math.exp(one) for one in cell.blocks], [row] * len(cell.blocks), "|", color="#90a4ae", ms=9)
        if cell.ratio is not None:
            colour = "#b0bec5" if cell.verdict == "void" else COLOURS["B"]
            spread = [[cell.ratio.value - cell.ratio.low], [cell.ratio.high - cell.ratio.value]]
            axes.errorbar(cell.ratio.value, row, xerr=spread, fmt="o", color=colour, capsize=4, zorder=3)
    axes.axvline(1.0, color="black", lw=0.8)
    _rows(axes, [f"{cell.name}\n{cell.verdict}" for cell in document.cells])
    axes.set_xlabel(f"{metric}: B / A, 95 % interval; ticks: blocks; grey: A / A")
    return figure


def _ttft(document: BenchDocument) -> Figure:
    arms = _arms(document)
    figure, axes = _figure(len(arms))
    for row, (_, name, arm) in enumerate(arms):
        if arm.ttft_ms:
            box = {
                "med": arm.ttft_ms["p50"], "q1": arm.ttft_ms["p25"], "q3": arm.ttft_ms["p75"],
                "whislo": arm.ttft_ms["p5"], "whishi": arm.ttft_ms["p95"],
            }  # fmt: skip
            drawn = axes.bxp(
                [box], positions=[row], orientation="horizontal", showfliers=False, patch_artist=True, widths=0.55
            )
            for patch in drawn["boxes"]:
                patch.set_facecolor(COLOURS[name])
                patch.set_alpha(0.55)
            axes.plot(arm.ttft_ms["p99"], row, ">", color=COLOURS[name], ms=5)
    axes.set_xscale("log")
    _plain_ticks(axes.xaxis)
    _rows(axes, [f"{cell} {name}" for cell, name, _ in arms])
    axes.set_xlabel("time to first token, ms, all requests: box 25 to 75 %, whiskers 5 to 95 %, mark 99 %")
    return figure


def _coverage(document: BenchDocument) -> Figure:
    arms = _arms(document)
    figure, axes = _figure(len(arms))
    reasons = sorted({reason for _, _, arm in arms for reason in arm.coverage.stopped})
    colours = {reason: _STOPPED[index % len(_STOPPED)] for index, reason in enumerate(reasons)}
    for row, (_, _, arm) in enumerate(arms):
        left = arm.coverage.attention_work or 0.0
        axes.barh(row, left, color=_GOOD, height=0.6)
        for reason, share in arm.coverage.stopped.items():
            axes.barh(row, share, left=left, color=colours[reason], height=0.6)
            left += share
        if arm.coverage.attention_work is None:
            axes.text(0.01, row, "no counters" if arm.runs else "not run", va="center")
    _legend(axes, {"on the fast path": _GOOD, **colours})
    axes.set_xlim(0, 1)
    _rows(axes, [f"{cell} {name}" for cell, name, _ in arms])
    axes.set_xlabel("share of attention work, by the reason that kept it off the path")
    return figure


def _timeline(document: BenchDocument) -> Figure:
    figure, axes = _figure(5)
    if document.runs:
        start = document.runs[0].began
        for run in document.runs:
            at = ((run.began + run.ended) / 2 - start) / 60
            if run.metric is not None:
                axes.plot(at, run.metric, "x" if run.void else "o", color=COLOURS[run.arm], ms=4)
            elif run.void:
                axes.axvline(at, color="#ef6c00", lw=0.8)
        if any(run.metric for run in document.runs):
            axes.set_yscale("log")
            _plain_ticks(axes.yaxis)
        other = axes.twinx()
        other.plot([(run.began - start) / 60 for run in document.runs], [run.load1 for run in document.runs],
                   color="#90caf9", lw=0.8)  # fmt: skip
        other.set_ylabel("load of the client's host", color="#1e88e5")
    _legend(axes, {"A": COLOURS["A"], "B": COLOURS["B"]})
    axes.set_xlabel("minutes; x: void run")
    axes.set_ylabel(document.provenance.metric)
    return figure


def _arms(document: BenchDocument) -> list[tuple[str, str, ArmPart]]:
    return [(cell.name, name, arm) for cell in document.cells for name, arm in cell.arms.items()]


def _plain_ticks(axis: Any) -> None:
    """300, not 3 x 10^2: the numbers are milliseconds that people compare with the table."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(FuncFormatter(lambda value, _: ""))


def _legend(axes: Any, colours: dict[str, str]) -> None:
    from matplotlib.patches import Patch

    # Above the axes: inside, it would hide a bar.
    axes.legend(
        handles=[Patch(color=colour, label=name) for name, colour in colours.items()],
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        ncols=4,
        fontsize=8,
        frameon=False,
    )


def _rows(axes: Any, names: list[str]) -> None:
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_ylim(len(names) - 0.4, -0.6)
