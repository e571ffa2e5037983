"""The document of ``fastfill explain --json``."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from fastfill.explaining.environment import traps
from fastfill.explaining.facts import Result
from fastfill.explaining.verdict import Explanation
from sglang_fastfill.conditions import BY_ID


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Condition(_Document):
    """One condition of the vocabulary. ``effect`` says what a fail does; "" for a pass."""

    id: str
    scope: Literal["deployment", "batch"]
    status: Literal["pass", "fail", "per_request", "unknown"]
    effect: Literal["", "stops", "crashes", "wrong", "refused"]
    detail: str
    fix: str
    source: str


class Hazard(_Document):
    """What can go wrong beside the conditions."""

    id: str
    status: Literal["pass", "fail", "per_request", "unknown"]
    effect: Literal["", "stops", "crashes", "wrong", "refused"]
    detail: str
    fix: str
    source: str


class EnvironmentTrap(_Document):
    """A variable that misleads."""

    name: str
    status: Literal["warn"]
    detail: str
    fix: str


class Reached(_Document):
    """The share of a lone prompt's attention work, in the judged layers, that takes the path; null if unknown."""

    prompt_tokens: int
    share: float | None


class Scheduler(_Document):
    """What the scheduler will do. ``chunked_prefill_size`` is null when chunking is off."""

    chunked_prefill_size: int | None
    how: str
    largest_batch_tokens: int | None
    radix: bool
    mixed_chunk: bool
    speculative: str


class Model(_Document):
    """The model as it was read; ``missing`` names what could not be known, by condition."""

    architecture: str
    layers: dict[str, int]
    judged: str
    q_heads: int | None
    kv_heads: int | None
    head_dim: int | None
    context: int | None
    missing: dict[str, str]


class ExplainDocument(_Document):
    """Whether the path will fire, and why."""

    schema_: Literal["fastfill.explain/1"] = Field("fastfill.explain/1", alias="schema")
    verdict: Literal["fires", "conditional", "never", "crashes", "wrong", "unknown"]
    reason: str
    summary: str
    sglang: str
    path: Literal["none", "builtin", "patched", "unknown"]
    model: Model
    scheduler: Scheduler
    conditions: list[Condition]
    hazards: list[Hazard]
    environment: list[EnvironmentTrap]
    reach: list[Reached]
    trouble: list[str]


def document(found: Explanation) -> ExplainDocument:
    """The document of an explanation."""
    facts = found.facts
    return ExplainDocument.model_validate(
        {
            "schema": "fastfill.explain/1",
            "verdict": found.verdict,
            "reason": found.reason,
            "summary": found.summary,
            "sglang": facts.release.sglang,
            "path": facts.release.path,
            "model": {
                "architecture": facts.model.architecture,
                "layers": {group.kind: group.count for group in facts.model.layers},
                "judged": facts.layers.kind,
                "q_heads": facts.model.q_heads,
                "kv_heads": facts.layers.kv_heads,
                "head_dim": facts.layers.qk_head_dim,
                "context": facts.model.context,
                "missing": dict(facts.model.missing),
            },
            "scheduler": {
                "chunked_prefill_size": facts.schedule.chunk,
                "how": facts.schedule.how,
                "largest_batch_tokens": facts.schedule.largest,
                "radix": facts.launch.radix,
                "mixed_chunk": facts.launch.mixed,
                "speculative": facts.launch.speculative,
            },
            "conditions": [{"scope": BY_ID[one.id].scope, **_shown(one)} for one in found.conditions],
            "hazards": [_shown(one) for one in found.hazards],
            "environment": [trap._asdict() for trap in traps(facts)],
            "reach": [reach._asdict() for reach in found.reach],
            "trouble": list(facts.release.trouble),
        }
    )


def fix_of(result: Result) -> str:
    """What to do about a result: its own word, else the vocabulary's; "" where it passes."""
    if result.status == "pass":
        return ""
    return result.fix or (BY_ID[result.id].fix if result.id in BY_ID else "")


def _shown(result: Result) -> dict[str, str]:
    return {
        "id": result.id,
        "status": result.status,
        "effect": result.effect,
        "detail": result.detail,
        "fix": fix_of(result),
        "source": result.source,
    }
