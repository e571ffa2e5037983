"""From conditions to a verdict, and to the share of attention work that reaches the path. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, NamedTuple

from fastfill.explaining import batch, deployment
from fastfill.explaining.facts import Facts, Result, attention_ranks, rank_heads
from fastfill.explaining.scheduler import PROMPTS, first_chunk_share, token_limit
from fastfill.model_config import Layers

Verdict = Literal["fires", "conditional", "never", "crashes", "wrong", "unknown"]
_SCALES = "facts/sglang.md 3.11: q, k and v are cast raw and descaled by the KV scales"
_HIDES_BEHIND_AITER = ("kernel_missing", "kernel_broken")


class Reach(NamedTuple):
    """How much of a lone prompt's attention work takes the path; None where the verdict is unknown."""

    prompt_tokens: int
    share: float | None


class Explanation(NamedTuple):
    """The answer.

    Attributes:
        verdict: What will happen.
        reason: The condition or hazard that decides it; "" where the path fires.
        summary: The answer in one sentence.
        facts: What it rests on, with the layers that were judged.
        conditions: Every condition, in the tables' order.
        hazards: What can go wrong beside the conditions.
        reach: By prompt length.
    """

    verdict: Verdict
    reason: str
    summary: str
    facts: Facts
    conditions: tuple[Result, ...]
    hazards: tuple[Result, ...]
    reach: tuple[Reach, ...]


def explain(facts: Facts, prompts: tuple[int, ...] = ()) -> Explanation:
    """Decide. The layers that come nearest to the path are judged; the others are counted in the details."""
    facts = replace(facts, layers=_nearest(facts))
    conditions, hazards = evaluate(facts), _hazards(facts)
    verdict, decisive = _decide(facts, (*conditions, *hazards))
    return Explanation(
        verdict,
        decisive[0].id if decisive else "",
        _summary(facts, verdict, decisive),
        facts,
        conditions,
        hazards,
        tuple(Reach(length, _share(facts, verdict, conditions, length)) for length in prompts or _lengths(facts)),
    )


def evaluate(facts: Facts) -> tuple[Result, ...]:
    """Every condition in the tables' order; what a live server's own gate says takes the place of our reading."""
    results = []
    for condition in (*deployment.CONDITIONS, *batch.CONDITIONS):
        result = condition(facts)
        if result.id in facts.live:
            status, value = facts.live[result.id]
            failed = status == "fail"
            source = "the server's own gate: /fastfill/status"
            result = Result(result.id, "fail" if failed else "pass", value, source, "stops" if failed else "")
        results.append(result)
    return tuple(results)


def _nearest(facts: Facts) -> Layers:
    """The layers with the fewest reasons against them; those without softmax attention only if there are no others."""

    def against(layers: Layers) -> tuple[bool, int]:
        results = evaluate(replace(facts, layers=layers))
        return layers.kind == "linear", sum(result.status == "fail" for result in results)

    return min(facts.model.layers, key=against)


def _hazards(facts: Facts) -> tuple[Result, ...]:
    found = []
    if facts.builtin and not facts.release.scales:
        effect, status = "wrong", "fail"
        if facts.scales.verdict != "other":
            effect, status = "", "pass" if facts.scales.verdict == "one" else "unknown"
        fix = (
            ""
            if status == "pass"
            else "use the stack sglang-0.5.16, which descales right, or a checkpoint without scales"
        )
        found.append(Result("kv_scales", status, facts.scales.detail, _SCALES, effect, fix))  # type: ignore[arg-type]
    if facts.schedule.refused:
        source = "facts/sglang.md 3.3: SGLang refuses to start"
        fix = "choose a multiple: --chunked-prefill-size"
        found.append(Result("chunk_page", "fail", facts.schedule.refused, source, "refused", fix))
    return tuple(found)


def _decide(facts: Facts, results: tuple[Result, ...]) -> tuple[Verdict, tuple[Result, ...]]:
    """The verdict and the results that give it.

    A certain stop outweighs everything; a certain crash or wrong answer outweighs what only aiter tests behind it, for
    a kernel that turns out to be missing or broken mends neither.
    """
    stops = tuple(one for one in results if one.status == "fail" and one.effect in ("stops", "refused"))
    if stops:
        return "never", stops
    open_questions = tuple(one for one in results if one.status == "unknown")
    before_aiter = tuple(one for one in open_questions if one.id not in _HIDES_BEHIND_AITER or facts.patched)
    if before_aiter:
        return "unknown", before_aiter
    crashes = tuple(one for one in results if one.effect == "crashes")
    if crashes:
        return "crashes", crashes
    wrong = tuple(one for one in results if one.effect == "wrong")
    if wrong:
        return "wrong", wrong
    if open_questions:
        return "unknown", open_questions
    some = tuple(one for one in results if one.status == "per_request")
    return ("conditional", some) if some else ("fires", ())


def _summary(facts: Facts, verdict: Verdict, decisive: tuple[Result, ...]) -> str:
    layers = f"{facts.layers.count} of {sum(group.count for group in facts.model.layers)} layers"
    names = ", ".join(one.id for one in decisive)
    first = f"{decisive[0].id}: {decisive[0].detail}" if decisive else ""
    return {
        "fires": f"every prefill takes the path in {layers}",
        "conditional": f"prefills take the path in {layers}, except by {names}",
        "never": f"the path is not taken, because of {first}",
        "crashes": f"the prefill raises, because of {first}",
        "wrong": f"answers are wrong, because of {first}",
        "unknown": f"cannot tell, because of {first}",
    }[verdict]


def _lengths(facts: Facts) -> tuple[int, ...]:
    longest = facts.launch.context or facts.model.context
    return tuple(length for length in PROMPTS if longest is None or length <= longest) or PROMPTS[:1]


def _share(facts: Facts, verdict: Verdict, conditions: tuple[Result, ...], prompt: int) -> float | None:
    if verdict == "unknown":
        return None
    if verdict in ("never", "crashes"):
        return 0.0
    status = {one.id: one for one in conditions}
    chunk = facts.schedule.chunk
    if status["batch_too_large"].effect == "stops" and min(prompt, chunk or prompt) >= _limit(facts):
        return 0.0
    return 1.0 if status["prefix_chunk"].status == "pass" else round(first_chunk_share(prompt, chunk), 6)


def _limit(facts: Facts) -> int:
    assert facts.model.q_heads is not None
    assert facts.layers.kv_heads is not None
    heads = rank_heads(facts.model.q_heads, facts.layers.kv_heads, attention_ranks(facts.launch))
    return token_limit(heads[0] if heads else 1)
