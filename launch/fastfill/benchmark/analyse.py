"""From a benchmark's plan and journal to its report: values in, values out."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from datetime import datetime, timezone
from typing import Any, Literal

from fastfill.benchmark import stats, verdict
from fastfill.benchmark.document import (
    ArmPart,
    BenchDocument,
    CellPart,
    CoveragePart,
    EstimatePart,
    ProofPart,
    Provenance,
    RunPart,
)
from fastfill.benchmark.grid import Cell
from fastfill.benchmark.measured import METRICS
from fastfill.benchmark.schedule import Kind, units
from fastfill.benchmark.stats import Estimate
from fastfill.benchmark.timings import timings
from fastfill.benchmark.verdict import Evidence

Event = dict[str, Any]
PERCENTILES = (5, 25, 50, 75, 90, 95, 99)


def analyse(plan: dict[str, Any], events: list[Event], *, changed: list[str], stack: str) -> BenchDocument:
    """Everything that a report says.

    Args:
        plan: ``plan.json``.
        events: The journal.
        changed: Raw files that are not what was written.
        stack: The stack file of the server's SGLang, and its digest.
    """
    cells = [Cell(**cell) for cell in plan["cells"]]
    runs = counted(events)
    stopped = _stopped(events)
    expected = {unit.name for unit in units(cells, blocks=plan["blocks"], noise=plan["noise"], switch=plan["switch"])}
    missing = expected - {event["unit"] for event in events if event["event"] == "unit"}
    evidence, differences, notes = [], [], []
    for cell in cells:
        mine = [run for run in runs if run["cell"] == cell.name]
        blocks, plain, void = _blocks(mine, "ab", plan["metric"])
        noise, _, noise_void = _blocks(mine, "aa", plan["metric"])
        reasons = [*void, *noise_void]
        if any(one in missing for one in expected if one.endswith(f"-{cell.name}") or plan["switch"] == "restart"):
            reasons.append(f"not finished{': ' + stopped if stopped else ''}")
        if any(run["step"] in file for run in mine for file in changed):
            reasons.append("a raw file was changed after it was written")
        evidence.append(Evidence(blocks, noise, reasons))
        differences.append(plain)
        notes.append(list(dict.fromkeys([*void, *noise_void])))
    judged = verdict.judge(evidence, lower_is_better=METRICS[plan["metric"]])
    parts = [
        _cell(cell, [run for run in runs if run["cell"] == cell.name], found, outcome, plain, why)
        for cell, found, outcome, plain, why in zip(cells, evidence, judged, differences, notes, strict=True)
    ]
    return BenchDocument(
        complete=not missing,
        provenance=_provenance(plan, events, runs, stack),
        cells=parts,
        proofs=[
            ProofPart(arm=event["arm"], time=event["time"], holds=event["holds"], why=event["why"])
            for event in events
            if event["event"] == "proof"
        ],
        interruptions=_interruptions(events),
        changed_files=changed,
        runs=[_run(run, plan["metric"]) for run in runs if "began" in run],
        timings=timings(cells, runs, _about(events).get("device")),
        plan=plan,
    )


def counted(events: list[Event]) -> list[Event]:
    """The runs of each unit's last attempt; what an interrupted attempt left is listed, not counted."""
    last = {event["unit"]: event["attempt"] for event in events if event["event"] == "begun"}
    return [event for event in events if event["event"] == "run" and event["attempt"] == last.get(event["unit"])]


def _blocks(runs: list[Event], kind: Kind, metric: str) -> tuple[list[float], list[float], list[str]]:
    """ln(right/left) and right - left of each whole block, and why the others are void."""
    ratios: list[float] = []
    plain: list[float] = []
    void: list[str] = []
    for number in sorted({run["block"] for run in runs if run["kind"] == kind}):
        block = [run for run in runs if run["kind"] == kind and run["block"] == number]
        if reasons := [reason for run in block for reason in run["void"]]:
            void += reasons
            continue
        sides = {
            side: [run["run"]["metrics"].get(metric, 0.0) for run in block if run["side"] == side]
            for side in ("left", "right")
        }
        if min(map(len, sides.values())) < 2:
            continue
        if min(sides["left"] + sides["right"]) <= 0.0:
            void.append(f"{metric} is 0: the load has none")
            continue
        ratios.append(stats.log_ratio(sides["left"], sides["right"]))
        plain.append(stats.difference(sides["left"], sides["right"]))
    return ratios, plain, void


def _cell(
    cell: Cell, runs: list[Event], evidence: Evidence, judged: verdict.Verdict, plain: list[float], notes: list[str]
) -> CellPart:
    sides: tuple[Literal["A", "B"], ...] = ("A", "B")
    # Blocks of noise are arm A's too, but only what was run beside B is compared with it.
    good = [run for run in runs if run["kind"] == "ab" and run["run"] is not None]
    arms = {name: _arm([run for run in good if run["arm"] == name]) for name in sides}
    return CellPart(
        **cell._asdict(),
        name=cell.name,
        verdict=judged.name,
        why=judged.why,
        ratio=_estimate(judged.ratio),
        difference=_estimate(stats.mean(plain)),
        noise=_estimate(judged.noise),
        adjusted_p=judged.adjusted_p,
        arms=arms,
        blocks=list(evidence.blocks),
        noise_blocks=list(evidence.noise),
        void_blocks=notes,
    )


def _arm(runs: list[Event]) -> ArmPart:
    bodies = [run["run"] for run in runs]
    times = sorted(time for body in bodies for time in body["ttft_ms"])
    reasons = sorted({reason for body in bodies for reason in body["stopped"]})
    stopped = {one: math.fsum(body["stopped"].get(one, 0.0) for body in bodies) / len(bodies) for one in reasons}
    calls = [body["calls"] for body in bodies if body["calls"] is not None]
    return ArmPart(
        runs=len(bodies),
        requests=len(times),
        metrics={
            name: statistics.median(body["metrics"][name] for body in bodies if name in body["metrics"])
            for name in METRICS
            if any(name in body["metrics"] for body in bodies)
        },
        ttft_ms={f"p{at}": percentile(times, at) for at in PERCENTILES} if times else {},
        coverage=CoveragePart(
            tokens=_mean(body["tokens"] for body in bodies),
            attention_work=_mean(body["work"] for body in bodies),
            stopped=stopped,
        ),
        fast_calls=sum(calls) if calls else None,
    )


def percentile(ordered: list[float], at: float) -> float:
    """The percentile of sorted values, linear between neighbours."""
    place = (len(ordered) - 1) * at / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _estimate(estimate: Estimate | None) -> EstimatePart | None:
    return None if estimate is None else EstimatePart(**estimate._asdict())


def _run(run: Event, metric: str) -> RunPart:
    body = run["run"]
    return RunPart(
        step=run["step"],
        cell=run["cell"],
        arm=run["arm"],
        kind=run["kind"],
        began=run["began"],
        ended=run["ended"],
        load1=run["load"]["load1"],
        metric=None if body is None else body["metrics"].get(metric),
        void="; ".join(run["void"]),
    )


def _stopped(events: list[Event]) -> str:
    for event in reversed(events):
        if event["event"] == "stopped":
            return str(event["why"])
        if event["event"] == "started":
            break
    return ""


def _interruptions(events: list[Event]) -> list[str]:
    found = []
    begun = False
    for event in events:
        if event["event"] == "started":
            if begun:
                found.append(f"{_when(event['time'])}: gone on with, {event['left']} unit(s) left")
            begun = True
        elif event["event"] == "stopped":
            found.append(f"{_when(event['time'])}: stopped: {event['why']}")
        elif event["event"] == "interrupted":
            found.append(f"{_when(event['time'])}: {event.get('unit', 'interrupted')}: {event['why']}")
    return found


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


def _about(events: list[Event]) -> dict[str, str]:
    """What the server said of itself at the first proof that it answered."""
    return next((event["about"] for event in events if event.get("about")), {})


def _provenance(plan: dict[str, Any], events: list[Event], runs: list[Event], stack: str) -> Provenance:
    servers = [event["document"]["server"] for event in events if event["event"] == "proof"]
    server: dict[str, Any] = next((one for one in reversed(servers) if one), {})
    about = _about(events)
    loads = [run["load"]["load1"] for run in runs if "load" in run]
    cpus = next((run["load"]["cpus"] for run in runs if "load" in run), 0)
    return Provenance(
        fastfill=plan["fastfill"],
        began=_when(events[0]["time"]) if events else "",
        ended=_when(events[-1]["time"]) if events else "",
        client=plan["client"],
        server=plan["server"],
        sglang=server.get("sglang", ""),
        model=server.get("model_path", ""),
        tp_size=server.get("tp_size"),
        stack=stack,
        kernel=about.get("kernel", "not known"),
        gpu=about.get("gpu", "not known"),
        a=plan["a"],
        b=plan["b"],
        differences=[f"{one['name']}: {one['a']} in A, {one['b']} in B" for one in plan["differences"]],
        label=plan["label"],
        switch=plan["switch"],
        metric=plan["metric"],
        blocks=plan["blocks"],
        noise=plan["noise"],
        load=f"{min(loads):.1f} to {max(loads):.1f} on {cpus:.0f} CPUs" if loads else "no runs",
    )
