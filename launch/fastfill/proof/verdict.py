"""Evidence in, verdict out: no I/O, so that every rule has a test and a recorded proof can be judged again."""

from __future__ import annotations

from typing import Literal, NamedTuple

from fastfill.proof.answers import Answers, judge_answers
from fastfill.proof.attempt import Outcome, judge
from fastfill.proof.contradicted import contradicted
from fastfill.proof.control import Control, judge_control
from fastfill.proof.coverage import Coverage, coverage, too_little
from fastfill.proof.evidence import Attempt, Evidence
from fastfill.proof.explain import stopped_by, with_a_way_off
from fastfill.proof.findings import Finding, find
from fastfill.proof.load import Loaded, measure
from fastfill.proof.soundness import before_probe, identity, measurement
from fastfill.proof.tally import Tally, tally
from fastfill.proof.wire import RankStatus
from fastfill.proof.words import Word, words

Name = Literal["FIRED", "PARTIAL", "NOT_FIRED", "NOT_EXERCISED", "DISAGREE", "INVALID", "WRONG"]

EXIT_CODES: dict[str, int] = {
    "FIRED": 0,
    "PARTIAL": 1,
    "NOT_FIRED": 1,
    "NOT_EXERCISED": 3,
    "DISAGREE": 1,
    "INVALID": 1,
    "WRONG": 1,
}


_OPEN = {
    "cannot_say": "; whether its answers are right is NOT shown",
    "not_checked": "; its answers were not compared",
}
"""What FIRED says of the answers where they were not found right."""


class Verdict(NamedTuple):
    """What the evidence amounts to.

    Attributes:
        reason: Why it is not FIRED; None when it is.
        summary: One sentence.
        ranks: One account a rank, of the probe that counted for it.
        answers: Whether the answers of fast path and fallback were compared, and how that ended.
        loaded: The shares of the prompts that were sent at once; None where none were.
        witnesses: What each witness that was asked says; the counters first.
    """

    name: Name
    reason: Finding | None
    summary: str
    ranks: tuple[Tally, ...]
    control: Control
    answers: Answers
    coverage: Coverage
    loaded: Loaded | None
    witnesses: tuple[Word, ...]

    @property
    def exit_code(self) -> int:
        """As DESIGN has it: 0 fired, 3 not exercised, 1 otherwise."""
        return EXIT_CODES[self.name]


def decide(evidence: Evidence) -> Verdict:
    """Judge a proof.

    The order matters: first what makes the measurement worthless (INVALID), then what kept it from being made
    (NOT_EXERCISED), then whether the answers are right (WRONG), then the count.
    """
    ranks = _tallies(evidence)
    control = Control("not_run", "the probe did not fire")
    answers = judge_answers(evidence.answers)
    counters = Word("counters", "cannot_say", "no fair probe to compare with")
    others: tuple[Word, ...] = ()

    def verdict(name: Name, reason: Finding | None, summary: str) -> Verdict:
        share = coverage(evidence.counters_after)
        loaded = measure(evidence.load) if evidence.load else None
        return Verdict(name, reason, summary, ranks, control, answers, share, loaded, (counters, *others))

    def invalid(found: tuple[str, str]) -> Verdict:
        return verdict("INVALID", find(found[0]), found[1])

    if evidence.silent and evidence.status_before is None:
        return verdict("NOT_EXERCISED", find("server_silent"), f"nothing was sent: {evidence.silent}")
    if unfit := before_probe(evidence):
        return invalid(unfit)
    if evidence.not_sent:
        return verdict("NOT_EXERCISED", find("prompt_too_long"), evidence.not_sent)
    if changed := identity(evidence):
        return invalid(changed)
    if missing := _not_exercised(evidence):
        id, summary = missing
        return verdict("INVALID" if id in ("probe_unseen", "probe_rewritten") else "NOT_EXERCISED", find(id), summary)

    broken = None if evidence.silent else measurement(evidence, ranks)
    if broken and broken[0] == "counters_contradict_ring":
        counters = Word("counters", "contradicts", broken[1])
    elif evidence.silent:
        counters = Word("counters", "cannot_say", evidence.silent)
    elif evidence.counters_after is not None:
        counters = Word("counters", "seen", "rose by at least the calls that the ring reports")
    others = words(evidence)
    if broken:
        return invalid(broken)

    fired = [one for one in ranks if one.observed == one.expected > 0 and one.passes > 0]
    observed = sum(one.observed for one in ranks)
    expected = sum(one.expected for one in ranks)
    if any(word.says == "contradicts" for word in others):
        said = [f"counters: {observed} of {expected} calls of the probe fired"]
        said += [f"{word.witness} {word.says}: {word.detail}" for word in others]
        return verdict("DISAGREE", find("witnesses_disagree"), "; ".join(said))
    if observed == 0 and not evidence.silent:
        reason = stopped_by(evidence, ranks)
        return verdict("NOT_FIRED", reason, f"none of {expected} prefill attention calls took the fast path")
    control = judge_control(evidence)
    if control.finding:
        return invalid((control.finding, control.detail))
    if ignored := contradicted(evidence, ranks):
        return verdict("INVALID", with_a_way_off(find(ignored[0]), evidence), ignored[1])
    if answers.status == "unsound":
        return invalid((answers.finding, answers.detail))
    if answers.status == "wrong":
        return verdict("WRONG", with_a_way_off(find(answers.finding), evidence), answers.detail)
    if evidence.silent:
        seen = f"{observed} of {expected} calls of the probe fired, and then there was no answer: {evidence.silent}"
        return verdict("NOT_EXERCISED", find("server_silent"), seen)
    if evidence.kv_scales:
        return verdict("WRONG", find("kv_scales"), f"{observed} call(s) fired, with {evidence.kv_scales}")
    short = tuple(one for one in ranks if (one.layers > 0 and one not in fired) or _draft_short(one))
    if short:
        named = "; ".join(_shortfall(one) for one in short)
        return verdict("PARTIAL", stopped_by(evidence, short), f"fewer calls than layers and passes: {named}")
    if control.status == "not_run":
        return verdict(
            "NOT_EXERCISED", find("deadline"), f"the probe fired, its negative control did not run: {control.detail}"
        )
    if answers.status == "not_run":
        return verdict(
            "NOT_EXERCISED", find(answers.finding), f"the probe fired, its answers are open: {answers.detail}"
        )
    if missed := too_little(evidence):
        id, why = missed
        return verdict("PARTIAL" if id == "coverage_low" else "NOT_EXERCISED", find(id), why)
    took = f"all {expected} prefill attention calls on {len(ranks)} rank(s) took the fast path"
    return verdict("FIRED", None, took + _OPEN.get(answers.status, ""))


def _draft_short(one: Tally) -> bool:
    return one.draft is not None and one.draft.observed < one.draft.expected


def _shortfall(one: Tally) -> str:
    if one.draft is not None and one.observed == one.expected:
        return f"{one.rank}, draft model {one.draft.observed} of {one.draft.expected}"
    if one.passes == 0:
        return f"{one.rank} saw no pass of the probe"
    return f"{one.rank} {one.observed} of {one.expected}"


def valid_attempts(evidence: Evidence) -> dict[int | None, Attempt]:
    """The probe that counts for each data-parallel rank: its first fair trial."""
    found: dict[int | None, Attempt] = {}
    for attempt in evidence.attempts:
        if attempt.dp not in found and judge(attempt).outcome is Outcome.VALID:
            found[attempt.dp] = attempt
    return found


def targets(dp_size: int) -> tuple[int | None, ...]:
    """Where probes must go: one anywhere, or one to each data-parallel rank, since idle ones run no attention."""
    return (None,) if dp_size <= 1 else tuple(range(dp_size))


def _tallies(evidence: Evidence) -> tuple[Tally, ...]:
    status = evidence.status_after or evidence.status_before
    if status is None or not evidence.attempts:
        return ()
    by_target = valid_attempts(evidence)
    last = {attempt.dp: attempt for attempt in evidence.attempts}
    tallies = []
    for rank in sorted(status.ranks, key=lambda one: one.rank.key()):
        target = _target_of(rank, evidence)
        attempt = by_target.get(target) or last.get(target)
        if attempt is not None:
            tallies.append(tally(attempt, rank))
    return tuple(tallies)


def _target_of(rank: RankStatus, evidence: Evidence) -> int | None:
    return None if evidence.server.dp_size <= 1 else rank.rank.dp


def _not_exercised(evidence: Evidence) -> tuple[str, str] | None:
    valid = valid_attempts(evidence)
    for target in targets(evidence.server.dp_size):
        if target in valid:
            continue
        tried = [judge(attempt) for attempt in evidence.attempts if attempt.dp == target]
        where = "" if target is None else f" on data-parallel rank {target}"
        if not tried and evidence.silent:
            return "server_silent", f"no probe was sent{where}: {evidence.silent}"
        if not tried:
            return "deadline", f"no probe was sent{where} within {evidence.deadline_s:.0f} s"
        last = tried[-1]
        ids = {
            Outcome.UNSEEN: "probe_unseen",
            Outcome.REWRITTEN: "probe_rewritten",
            Outcome.UNANSWERED: "deadline",
            Outcome.REFUSED: "probe_refused",
            Outcome.VOID: "no_fair_trial",
        }
        return ids[last.outcome], f"{len(tried)} probe(s) sent{where}, none fair: {last.why}"
    return None
