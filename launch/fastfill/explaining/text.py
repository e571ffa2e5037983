"""The answer of ``fastfill explain`` for people."""

from __future__ import annotations

from fastfill.explaining.environment import traps
from fastfill.explaining.facts import Result
from fastfill.explaining.verdict import Explanation
from sglang_fastfill.conditions import BY_ID

_WIDTH = 22


def lines(found: Explanation) -> list[str]:
    """The verdict, what does not pass, what passes, the traps and the reach."""
    facts = found.facts
    shown = [f"{found.verdict}: {found.summary}", ""]
    results = (*found.conditions, *found.hazards)
    for one in results:
        if one.status != "pass":
            shown += _open(one)
    passed = [one.id for one in results if one.status == "pass"]
    shown += _wrapped("passed", passed) if passed else []
    for trap in traps(facts):
        shown += [f"  {'warn':11} {trap.name}: {trap.detail}", f"  {'':11}   fix: {trap.fix}"]
    chunk = facts.schedule.chunk
    shown += ["", f"chunk: {chunk if chunk is not None else 'off'} ({facts.schedule.how})"]
    shares = [f"{reach.prompt_tokens}: {_percent(reach.share)}" for reach in found.reach]
    shown.append(f"share of a lone prompt's attention work on the path, by its tokens: {', '.join(shares)}")
    shown += [f"note: {one}" for one in facts.release.trouble]
    return shown


def _open(one: Result) -> list[str]:
    effect = f" [{one.effect}]" if one.effect not in ("", "stops") else ""
    fix = one.fix or (BY_ID[one.id].fix if one.id in BY_ID else "")
    return [f"  {one.status:11} {one.id:{_WIDTH}} {one.detail}{effect}", f"  {'':11} {'':{_WIDTH}} fix: {fix}"]


def _wrapped(title: str, words: list[str]) -> list[str]:
    rows, row = [], ""
    for word in words:
        if len(row) + len(word) > 90:
            rows.append(row)
            row = ""
        row += f"{word}, "
    rows.append(row.rstrip(", "))
    return [f"  {title if index == 0 else '':11} {text.rstrip()}" for index, text in enumerate(rows)]


def _percent(share: float | None) -> str:
    return "unknown" if share is None else f"{100 * share:.1f} %"
