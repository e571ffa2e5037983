"""What each witness says of the probe: seen, contradicts, or cannot say, and why."""

from __future__ import annotations

from typing import Literal, NamedTuple

from fastfill.proof.evidence import Evidence
from fastfill.proof.loglines import LogEvidence
from fastfill.proof.tally import is_ours
from fastfill.proof.traces import TraceEvidence, TraceRank
from fastfill.proof.wire import Pass, Rank, Status

Says = Literal["seen", "contradicts", "cannot_say"]
_HIDDEN = ("WARNING", "ERROR", "CRITICAL")


class Word(NamedTuple):
    """One witness's word."""

    witness: str
    says: Says
    detail: str


def words(evidence: Evidence) -> tuple[Word, ...]:
    """The words of the witnesses that were asked, beside the counters."""
    found = []
    if evidence.log is not None:
        found.append(of_log(evidence, evidence.log))
    if evidence.trace is not None:
        found.append(of_trace(evidence, evidence.trace))
    return tuple(found)


def of_log(evidence: Evidence, log: LogEvidence) -> Word:
    """The log against the counters of the server's whole life: a kernel is loaded once, at its first call."""
    status = evidence.status_after or evidence.status_before
    if log.problem or status is None or evidence.counters_after is None:
        return Word("log", "cannot_say", log.problem or "the server has no counters to compare with")
    seed = evidence.server.random_seed
    if seed is not None and log.seed is not None and seed != log.seed:
        return Word("log", "cannot_say", f"{log.source} is about another server, or another start of this one")
    lines, processes = len(log.lines), len(status.ranks)
    called = _ranks_that_called(evidence)
    counted = f"{lines} LoadKernel line(s) in {log.source}, {len(called)} rank(s) with calls by the counters"
    if lines and not called:
        if not _patched(status):
            return Word("log", "cannot_say", f"{counted}; an unpatched SGLang may use the kernel elsewhere")
        if not log.reaches_start:
            return Word("log", "cannot_say", f"{counted}; the log does not say which start they are of")
        return Word("log", "contradicts", f"the kernel was loaded, the counters know no call of it: {counted}")
    if lines >= max(1, len(called)) and not (log.reaches_start or log.dated):
        return Word("log", "cannot_say", f"{counted}; the log does not say which start they are of")
    if lines >= max(1, len(called)):
        return Word("log", "seen", f"{lines} line(s) for {processes} process(es) in {log.source}")
    if not called:
        return Word("log", "cannot_say", f"no line either: it bears the counters out, {log.source}")
    if why := _blind(log, status):
        return Word("log", "cannot_say", f"{counted}; {why}")
    return Word("log", "contradicts", f"a process that calls the kernel prints one line: {counted}")


def _blind(log: LogEvidence, status: Status) -> str:
    """Why a line may be missing though it was due, empty where it may not."""
    levels = {rank.aiter_log_level for rank in status.ranks}
    hidden = sorted(level for level in levels if level and level.upper() in _HIDDEN)
    if hidden:
        return f"AITER_LOG_LEVEL={hidden[0]} hides it"
    if not log.reaches_start:
        return "the log does not reach back to the server's start (rotated?)"
    if log.torn:
        return f"{log.torn} line(s) are torn: others wrote into them"
    if log.undecodable:
        return f"{log.undecodable} line(s) are not UTF-8"
    if None in levels and not log.others and not log.lines:
        return "aiter says nothing at all there, which may be its log level"
    return ""


def _ranks_that_called(evidence: Evidence) -> set[Rank]:
    """Ranks whose counters know a call of the assembly kernel at head dim 256 since the server started."""
    assert evidence.counters_after is not None
    return {
        rank
        for rank, calls in evidence.counters_after.calls().items()
        if any(key.kernel == "asm" and key.head_dim == 256 and count > 0 for key, count in calls.items())
    }


def of_trace(evidence: Evidence, trace: TraceEvidence) -> Word:
    """The profiler against the ring: the ring says which pass made how many calls, the trace how many kernels ran."""
    if trace.problem:
        return Word("trace", "cannot_say", trace.problem)
    status = evidence.status_after or evidence.status_before
    said = [_rank_says(one, trace, _patched(status)) for one in trace.ranks]
    seen = {_in_ring(trace, one.rank) for one, word in zip(trace.ranks, said, strict=True) if word.says == "seen"}
    bad: tuple[Says, ...] = ("contradicts", "cannot_say")
    for says in bad:
        given = [word.detail for word in said if word.says == says]
        if given:
            return Word("trace", says, "; ".join(given))
    owed = {ranked.rank for ranked in trace.between if _probe_calls(trace, ranked.rank)}
    if missing := sorted(owed - seen, key=Rank.key):
        return Word("trace", "cannot_say", f"there is no trace of {', '.join(map(str, missing))}")
    return Word("trace", "seen", "; ".join(word.detail for word in said) or "nothing")


def _rank_says(one: TraceRank, trace: TraceEvidence, patched: bool) -> Word:
    def word(says: Says, detail: str) -> Word:
        return Word("trace", says, f"{one.rank}: {detail}")

    if one.foreign:
        return word("cannot_say", f"the trace is of another GPU: {one.gpu}")
    if one.problem:
        return word("cannot_say", f"{one.file}: {one.problem}")
    owed, most, ran = _probe_calls(trace, one.rank), _all_calls(trace, one.rank), one.ours
    kernels = (
        f"{ran} run(s) of the kernel in the trace{' (emulated)' if one.emulated else ''}, {owed} call(s) in the ring"
    )
    if ran > most and trace.complete:
        if patched:
            return word("contradicts", f"{kernels}, {most} of anybody")
        return word("cannot_say", f"{kernels}; an unpatched SGLang may use it outside of prefills")
    if ran < owed:
        if not trace.whole:
            return word("cannot_say", f"{kernels}; the profiler ended before it was told to")
        return word("contradicts", kernels)
    if owed == 0:
        return word("cannot_say", f"{kernels}: it bears the counters out")
    return word("seen", kernels)


def _probe_calls(trace: TraceEvidence, rank: Rank) -> int:
    rids = {attempt.rid for attempt in trace.attempts}
    return sum(_fast(one) for one in _between(trace, rank) if not rids.isdisjoint(one.rids))


def _all_calls(trace: TraceEvidence, rank: Rank) -> int:
    return sum(_fast(one) for one in _between(trace, rank))


def _between(trace: TraceEvidence, rank: Rank) -> list[Pass]:
    wanted = _in_ring(trace, rank)
    return [one for ranked in trace.between if ranked.rank == wanted for one in ranked.passes]


def _in_ring(trace: TraceEvidence, rank: Rank) -> Rank:
    """The ring's name of the rank that a trace's name says.

    A trace's name has no data-parallel rank where attention alone is data parallel; tp then tells all ranks apart.
    """
    same = [ranked.rank for ranked in trace.between if ranked.rank.tp == rank.tp]
    return same[0] if len(same) == 1 else rank


def _fast(one: Pass) -> int:
    return sum(call.count for call in one.calls if is_ours(call))


def _patched(status: Status | None) -> bool:
    return status is not None and all(rank.patched for rank in status.ranks)
