"""What ``prove --json`` prints: versioned, more keys may come, these keep their names."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from fastfill.errors import FastfillError
from fastfill.proof.attempt import judge
from fastfill.proof.evidence import Evidence
from fastfill.proof.findings import Finding
from fastfill.proof.layout import unseen
from fastfill.proof.load import RID_PREFIX as LOAD_PREFIX
from fastfill.proof.verdict import Name, Verdict
from fastfill.proof.wire import KernelCalls, PathState, Rank

SCHEMA: Literal["fastfill.prove/1"] = "fastfill.prove/1"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class ReasonPart(_Part):
    """A condition of the gate or a finding of the proof."""

    id: str
    meaning: str
    fix: str
    seen: str = ""


class DraftPart(_Part):
    """The draft model's account on the same rank."""

    expected_calls: int
    observed_calls: int
    passes: int
    reasons: dict[str, int]


class RankPart(_Part):
    """One rank's account; counts are attention calls of one probe."""

    rank: Rank
    pid: int
    expected_calls: int
    observed_calls: int
    passes: int
    reasons: dict[str, int]
    calls: list[KernelCalls]
    draft: DraftPart | None = None


class WitnessPart(_Part):
    """What one witness says; ``named`` is one that the operator asked for by name."""

    witness: str
    says: Literal["seen", "contradicts", "cannot_say"]
    detail: str
    named: bool = False


class StatePart(_Part):
    """A part of the proof that is done or not, and why."""

    status: str
    detail: str


class AnswerCheckPart(_Part):
    """One check of the answers: log probabilities in nats, or needles found."""

    check: str
    status: str
    detail: str
    figures: dict[str, float]


class AnswersPart(StatePart):
    """The comparison of answers."""

    checks: list[AnswerCheckPart] = []


class LoadPart(_Part):
    """Shares of the prompts that were sent at once, 0 to 1; null where no pass of theirs is remembered."""

    prompts: int
    prompt_tokens: int
    passes: int
    tokens: float | None = None
    attention_work: float | None = None
    stopped: dict[str, float] = {}
    problem: str = ""


class CoveragePart(_Part):
    """Shares of the server's prefill since it started, 0 to 1; null where nothing was prefilled."""

    tokens: float | None = None
    attention_work: float | None = None
    stopped: dict[str, float] = {}
    load: LoadPart | None = None


class AttemptPart(_Part):
    """One request that was sent."""

    rid: str
    prompt_tokens: int
    outcome: str
    detail: str


class ServerPart(_Part):
    """The server that was asked."""

    sglang: str
    model_path: str
    tp_size: int
    plugin: str | None
    patched: bool | None
    flag: bool | None
    backend: str | None
    path: PathState | None


class EvidencePart(_Part):
    """Where the evidence lies. Whoever notes down the manifest's SHA-256 knows the whole folder."""

    folder: str
    manifest_sha256: str
    replayed: bool = False


class ErrorPart(_Part):
    """Why there is no verdict."""

    what: str
    where: str
    next_step: str
    exit_code: int


class ProveDocument(_Part):
    """The document. ``verdict`` is null only where ``error`` says why no proof could be made at all."""

    schema_name: Literal["fastfill.prove/1"] = Field(default=SCHEMA, alias="schema")
    url: str
    verdict: Name | None
    exit_code: int
    summary: str = ""
    reason: ReasonPart | None = None
    next_step: str = ""
    ranks: list[RankPart] = []
    unseen: list[Rank] = []
    witnesses: list[WitnessPart] = []
    control: StatePart = StatePart(status="not_run", detail="")
    answers: AnswersPart = AnswersPart(status="not_checked", detail="")
    coverage: CoveragePart = CoveragePart()
    attempts: list[AttemptPart] = []
    notes: list[str] = []
    server: ServerPart | None = None
    evidence: EvidencePart | None = None
    error: ErrorPart | None = None
    elapsed_s: float = 0.0


def document(
    evidence: Evidence, verdict: Verdict, *, next_step: str, notes: list[str], elapsed_s: float
) -> ProveDocument:
    """The document of a proof that came to a verdict."""
    return ProveDocument(
        url=evidence.url,
        verdict=verdict.name,
        exit_code=verdict.exit_code,
        summary=verdict.summary,
        reason=_reason(verdict.reason, evidence.url),
        next_step=next_step,
        ranks=[
            RankPart(
                rank=one.rank,
                pid=one.pid,
                expected_calls=one.expected,
                observed_calls=one.observed,
                passes=one.passes,
                reasons=one.reasons,
                calls=list(one.calls),
                draft=None
                if one.draft is None
                else DraftPart(
                    expected_calls=one.draft.expected,
                    observed_calls=one.draft.observed,
                    passes=one.draft.passes,
                    reasons=one.draft.reasons,
                ),
            )
            for one in verdict.ranks
        ],
        unseen=list(unseen(evidence)),
        witnesses=[
            WitnessPart(witness=one.witness, says=one.says, detail=one.detail, named=one.witness in evidence.named)
            for one in verdict.witnesses
        ],
        control=StatePart(status=verdict.control.status, detail=verdict.control.detail),
        answers=AnswersPart(
            status=verdict.answers.status,
            detail=verdict.answers.detail,
            checks=[
                AnswerCheckPart(check=one.name, status=one.status, detail=one.detail, figures=one.figures)
                for one in verdict.answers.checks
            ],
        ),
        coverage=CoveragePart(
            tokens=verdict.coverage.tokens,
            attention_work=verdict.coverage.attention_work,
            stopped=verdict.coverage.stopped,
            load=_load(evidence, verdict),
        ),
        attempts=[
            AttemptPart(
                rid=one.rid, prompt_tokens=one.prompt_tokens, outcome=judge(one).outcome.value, detail=judge(one).why
            )
            for one in evidence.sent()
            if not one.rid.startswith(LOAD_PREFIX)
        ],
        notes=notes,
        server=_server(evidence),
        elapsed_s=round(elapsed_s, 3),
    )


def error_document(url: str, error: FastfillError, *, elapsed_s: float) -> ProveDocument:
    """The document of a proof that could not be made."""
    return ProveDocument(
        url=url,
        verdict=None,
        exit_code=int(error.code),
        summary=error.what,
        next_step=error.next_step,
        error=ErrorPart(what=error.what, where=error.where, next_step=error.next_step, exit_code=int(error.code)),
        elapsed_s=round(elapsed_s, 3),
    )


def _reason(finding: Finding | None, url: str) -> ReasonPart | None:
    return (
        None
        if finding is None
        else ReasonPart(
            id=finding.id,
            meaning=finding.meaning,
            fix=finding.fix.replace("--url URL", f"--url {url}"),
            seen=finding.seen,
        )
    )


def _load(evidence: Evidence, verdict: Verdict) -> LoadPart | None:
    if evidence.load is None or verdict.loaded is None:
        return None
    return LoadPart(
        prompts=verdict.loaded.prompts,
        prompt_tokens=evidence.load.tokens,
        passes=verdict.loaded.passes,
        tokens=verdict.loaded.tokens,
        attention_work=verdict.loaded.attention_work,
        stopped=verdict.loaded.stopped,
        problem=evidence.load.problem,
    )


def _server(evidence: Evidence) -> ServerPart:
    status = evidence.status_after or evidence.status_before
    rank = status.ranks[0] if status and status.ranks else None
    return ServerPart(
        sglang=evidence.server.version,
        model_path=evidence.server.model_path,
        tp_size=evidence.server.tp_size,
        plugin=status.version if status else None,
        patched=rank.patched if rank else None,
        flag=rank.flag if rank else None,
        backend=rank.backend if rank else None,
        path=status.path if status else None,
    )
