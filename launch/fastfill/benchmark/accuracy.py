"""The accuracy gate at work: the same questions to fp8 KV on the fast path, fp8 KV on the fallback, and bf16 KV."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

from fastfill import output
from fastfill.benchmark import gate
from fastfill.benchmark.arms import Arm
from fastfill.benchmark.connection import Connection
from fastfill.benchmark.journal import Journal
from fastfill.benchmark.measured import rise
from fastfill.benchmark.proven import Proof
from fastfill.benchmark.questions import Question
from fastfill.proof.coverage import coverage

ArmId = Literal["fast", "fallback", "bf16"]
COMPARISONS: tuple[tuple[ArmId, ArmId, str], ...] = (
    ("fallback", "fast", "what the fast path costs"),
    ("bf16", "fallback", "what fp8 KV itself costs"),
    ("bf16", "fast", "what both cost together"),
)
"""Reference, candidate, and the question that the comparison answers."""


class Place(NamedTuple):
    """One arm.

    Attributes:
        arm: What it must be.
        take: Makes the server this arm and returns how to talk to it; None where there is no such server.
    """

    id: ArmId
    arm: Arm
    take: Callable[[], Connection] | None


def run(
    places: list[Place],
    questions: list[Question],
    journal: Journal,
    *,
    margin: float,
    prove: Callable[[Connection, Arm], Proof],
    score: Callable[[Connection, Path, int], list[bool]],
    drain_s: float,
) -> dict[str, Any]:
    """Measure every arm that is not in the journal yet, and judge.

    Returns:
        The document ``fastfill.accuracy/1``.

    Raises:
        FastfillError: A server cannot be reached, or lm-eval fails.
    """
    for place in places:
        if place.take is None or _of(journal, place.id) is not None:
            continue
        output.talk(f"bench: {len(questions)} questions to the arm {place.id}")
        connection = place.take()
        connection.drain(drain_s)
        proof = prove(connection, place.arm)
        # The proof's own prompts are not what is scored, and must not warm the cache for it.
        connection.drain(drain_s)
        attempt = sum(event["event"] == "asking" and event["arm"] == place.id for event in journal.events)
        journal.add("asking", arm=place.id)
        before = connection.visit(lambda server: server.counters())
        right = score(connection, journal.folder / "raw" / f"{place.id}-{attempt}", proof.context)
        after = connection.visit(lambda server: server.counters())
        covered = coverage(rise(before, after)) if before is not None and after is not None else None
        journal.add(
            "arm",
            arm=place.id,
            right=right,
            proof={"holds": proof.holds, "why": proof.why, "answers": proof.document.get("answers")},
            coverage=None if covered is None else covered._asdict(),
        )
    return judge(journal.events, len(questions), margin=margin)


def _of(journal: Journal, id: str) -> dict[str, Any] | None:
    return next((event for event in journal.events if event["event"] == "arm" and event["arm"] == id), None)


def judge(events: list[dict[str, Any]], questions: int, *, margin: float) -> dict[str, Any]:
    """The document, from what was written down: values in, values out."""
    arms = {event["arm"]: event for event in events if event["event"] == "arm"}
    comparisons = [_compare(arms, *one, margin=margin) for one in COMPARISONS]
    return {
        "schema": "fastfill.accuracy/1",
        "verdict": gate.together([one["verdict"] for one in comparisons]),
        "questions": questions,
        "margin": margin,
        "comparisons": comparisons,
        "arms": [
            {
                "arm": name,
                "right": sum(event["right"]),
                "share": sum(event["right"]) / len(event["right"]),
                "coverage": event["coverage"],
                "proof": event["proof"],
            }
            for name, event in arms.items()
        ],
    }


def _compare(
    arms: dict[str, dict[str, Any]], reference: ArmId, candidate: ArmId, asks: str, *, margin: float
) -> dict[str, Any]:
    head = {"asks": asks, "reference": reference, "candidate": candidate}
    if missing := [name for name in (reference, candidate) if name not in arms]:
        return {**head, "verdict": "inconclusive", "why": f"not measured: {', '.join(missing)}"}
    for name in (reference, candidate):
        proof, covered = arms[name]["proof"], arms[name]["coverage"]
        if not proof["holds"]:
            wrong = (proof["answers"] or {}).get("status") == "wrong"
            return {**head, "verdict": "fail" if wrong else "inconclusive", "why": f"arm {name}: {proof['why']}"}
        if name == "fast" and (covered is None or not covered["attention_work"]):
            return {**head, "verdict": "inconclusive", "why": "no scored prompt took the fast path"}
        if name != "fast" and covered is not None and covered["attention_work"]:
            why = f"arm {name}: {100 * covered['attention_work']:.1f} % of its attention work took the fast path"
            return {**head, "verdict": "inconclusive", "why": why}
    found = gate.judge(arms[reference]["right"], arms[candidate]["right"], margin=margin)
    return {**head, "verdict": found.name, "why": found.why, **found.paired._asdict()}


def plan(questions: list[Question], *, margin: float, servers: dict[str, str]) -> dict[str, Any]:
    """What a result depends on, fixed before the first question."""
    text = json.dumps([list(one) for one in questions])
    digest = hashlib.sha256(text.encode()).hexdigest()
    return {
        "schema": "fastfill.accuracy-plan/1",
        "questions": len(questions),
        "sha256": digest,
        "margin": margin,
        "servers": servers,
    }


def lines(document: dict[str, Any]) -> list[str]:
    """The document for a person."""
    found = [f"{document['verdict']}: {document['questions']} questions, margin {100 * document['margin']:g} points"]
    for arm in document["arms"]:
        work = (arm["coverage"] or {}).get("attention_work")
        share = "not known" if work is None else f"{100 * work:.1f} %"
        found.append(f"  {arm['arm']:<9} {100 * arm['share']:5.1f} % right; attention work on the fast path: {share}")
    for one in document["comparisons"]:
        found.append(f"  {one['asks']}: {one['verdict']}: {one['why']}")
    return found
