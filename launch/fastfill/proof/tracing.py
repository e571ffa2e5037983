"""The step of a proof that lets the server's profiler watch a probe."""

from __future__ import annotations

from fastfill.errors import NotReadyError
from fastfill.proof.attempt import Outcome, judge
from fastfill.proof.evidence import Attempt, Evidence
from fastfill.proof.probe import RID_PREFIX
from fastfill.proof.profiling import Profile
from fastfill.proof.traces import TraceEvidence
from fastfill.proof.transport import TimedOut
from fastfill.proof.verdict import targets
from fastfill.proof.visit import Visit, silence, until_fair


def trace(visit: Visit, evidence: Evidence) -> Evidence:
    """Profile further probes, one to each data-parallel rank, where the trace is asked for and probes were fair."""
    if "trace" not in visit.plan.witnesses or not _worth_it(evidence):
        return evidence
    profile = Profile(visit.server, visit.plan.profile_steps, visit.plan.profile_dir, visit.plan.log.container)
    try:
        found = _traced(visit, profile, targets(evidence.server.dp_size))
    except (TimedOut, NotReadyError) as error:
        found = TraceEvidence(problem=silence(error))
    finally:
        if not profile.remove():
            visit.talk.check("trace", "note", f"the traces in {profile.folder} could not be removed")
    ran = sum(one.ours for one in found.ranks)
    said = f"{ran} run(s) of the kernel in the traces of {len(found.ranks)} rank(s)"
    visit.talk.check("trace", "note", found.problem or said)
    return evidence.model_copy(update={"trace": found})


def _traced(visit: Visit, profile: Profile, places: tuple[int | None, ...]) -> TraceEvidence:
    """Profile a probe to each place.

    Raises:
        TimedOut: The server does not tell its ring.
    """
    if visit.deadline.passed():
        return TraceEvidence(problem=f"the time was up before it ({visit.deadline.seconds:.0f} s)")
    if problem := profile.start(visit.deadline):
        return TraceEvidence(problem=problem)
    attempts: list[Attempt] = []
    try:
        for place in places:
            attempts += until_fair(visit, RID_PREFIX, place)
    finally:
        with visit.talk.working("the server writes its traces"):
            whole = profile.stop(visit.deadline)
    between, complete = profile.between()
    with visit.talk.working("reading the traces"):
        ranks, problem = profile.fetch(visit.deadline)
    return TraceEvidence(
        problem=problem,
        attempts=tuple(attempts),
        whole=whole,
        between=between,
        complete=complete,
        ranks=ranks,
    )


def trace_tokens(visit: Visit, evidence: Evidence) -> int:
    """What the step takes, in prompt tokens."""
    return visit.size.tokens * len(targets(evidence.server.dp_size)) if "trace" in visit.plan.witnesses else 0


def _worth_it(evidence: Evidence) -> bool:
    return any(judge(attempt).outcome is Outcome.VALID for attempt in evidence.attempts)
