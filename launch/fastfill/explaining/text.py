"""The answer of ``fastfill explain`` for people."""

from __future__ import annotations

import re
import textwrap

from fastfill.explaining.environment import traps
from fastfill.explaining.facts import Result
from fastfill.explaining.verdict import Explanation
from sglang_fastfill.conditions import BY_ID

_WIDTH = 22
_NARROWEST, _WIDEST = 60, 104
_INDENT = 14


def lines(found: Explanation, columns: int | None = None) -> list[str]:
    """The verdict, what does not pass, what passes, the traps and the reach.

    Args:
        found: What was decided.
        columns: Longer lines are folded, under where their text begins; None for none but the list of what passes.
    """
    facts = found.facts
    shown = [f"{found.verdict}: {found.summary}", ""]
    results = (*found.conditions, *found.hazards)
    for one in results:
        if one.status != "pass":
            shown += _open(one)
    passed = [one.id for one in results if one.status == "pass"]
    shown += _folded(f"  {'passed':11} {', '.join(passed)}", min(columns or _WIDEST, _WIDEST)) if passed else []
    for trap in traps(facts):
        shown += [f"  {'warn':11} {trap.name}: {trap.detail}", f"  {'':11}   fix: {trap.fix}"]
    chunk = facts.schedule.chunk
    shown += ["", f"chunk: {chunk if chunk is not None else 'off'} ({facts.schedule.how})"]
    shares = [f"{reach.prompt_tokens}: {_percent(reach.share)}" for reach in found.reach]
    shown.append(f"share of a lone prompt's attention work on the path, by its tokens: {', '.join(shares)}")
    shown += [f"note: {one}" for one in facts.release.trouble]
    return shown if columns is None else [part for line in shown for part in _folded(line, columns)]


def _folded(line: str, columns: int) -> list[str]:
    columns = max(columns, _NARROWEST)
    # Two spaces or more separate the columns of a line; its text is what stands in the last of them.
    at = max((match.end() for match in re.finditer(r" {2,}", line)), default=0)
    # A flag or a name that is cut at its dash cannot be copied.
    return textwrap.wrap(
        line,
        columns,
        subsequent_indent=" " * (at if at <= columns // 2 else _INDENT),
        break_long_words=False,
        break_on_hyphens=False,
    ) or [""]


def _open(one: Result) -> list[str]:
    effect = f" [{one.effect}]" if one.effect not in ("", "stops") else ""
    fix = one.fix or (BY_ID[one.id].fix if one.id in BY_ID else "")
    return [f"  {one.status:11} {one.id:{_WIDTH}} {one.detail}{effect}", f"  {'':11} {'':{_WIDTH}} fix: {fix}"]


def _percent(share: float | None) -> str:
    return "unknown" if share is None else f"{100 * share:.1f} %"
