"""Collects the evidence: reads the server, sends probes until one is a fair trial, sends the control, reads again."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from fastfill.errors import NotReadyError
from fastfill.proof import companion
from fastfill.proof import visit as visiting
from fastfill.proof.answers_send import compare, cost
from fastfill.proof.control import judge_control
from fastfill.proof.counters import rise
from fastfill.proof.evidence import Attempt, Evidence
from fastfill.proof.load import cost as load_cost
from fastfill.proof.load import load
from fastfill.proof.logsource import check as check_log
from fastfill.proof.logsource import read as read_log
from fastfill.proof.pace import pace, watch
from fastfill.proof.probe import CONTROL_RID_PREFIX, RID_PREFIX, Length, length
from fastfill.proof.server import Server
from fastfill.proof.soundness import before_probe
from fastfill.proof.tally import ring_calls
from fastfill.proof.tracing import trace, trace_tokens
from fastfill.proof.transport import Deadline, TimedOut
from fastfill.proof.verdict import targets
from fastfill.proof.visit import POLL_S, Plan, Talk, Visit, fired, silence, until_fair
from fastfill.proof.wire import Status


def gather(server: Server, plan: Plan, deadline: Deadline, talk: Talk) -> Evidence:
    """Read, probe and read again.

    Raises:
        UsageError: The log is not where it was said to be.
        FastfillError: The server cannot be reached at first, is no SGLang server, or answers what we cannot read.
    """
    if "log" in plan.witnesses:
        check_log(plan.log)
    facts = server.facts()
    talk.check("server", "ok", f"SGLang {facts.version}, tp {facts.tp_size}, {facts.model_path}")
    evidence = Evidence(
        url=server.url,
        server=facts,
        status_before=None,
        config_layers=plan.count_layers(facts.model_path),
        deadline_s=deadline.seconds,
        min_coverage=plan.min_coverage,
        named=tuple(sorted(plan.named)),
    )
    try:
        visit, evidence = _prepared(server, plan, deadline, talk, evidence)
    except TimedOut as error:
        talk.check("server", "fail", silence(error))
        return evidence.model_copy(update={"silent": silence(error)})
    return _send_and_read(visit, evidence) if visit is not None else evidence


def _prepared(
    server: Server, plan: Plan, deadline: Deadline, talk: Talk, evidence: Evidence
) -> tuple[Visit | None, Evidence]:
    """What is read before anything is sent, and the visit; None where nothing can be sent."""
    facts, status = evidence.server, server.status()
    evidence = evidence.model_copy(
        update={
            "status_before": status,
            "counters_before": server.counters() if status else None,
            "kv_scales": plan.find_scales(facts.model_path, status),
        }
    )
    unfit = before_probe(evidence)
    if unfit:
        talk.check(unfit[0], "fail", unfit[1])
        return None, evidence
    talk.check("witness", "ok", f"plugin attached, {len(status.ranks) if status else 0} rank(s) report")
    size = length(plan.prompt_tokens, facts, status)
    space_s = 0.0
    if plan.light and not size.refused:
        with talk.working("watching the traffic"):
            allowed = pace(watch(server, deadline), size.tokens)
        space_s = allowed.space_s
        size = Length(allowed.tokens, "1 % of the traffic" if space_s else "light, on an idle server")
        talk.check(
            "traffic",
            "note",
            f"{allowed.traffic:.0f} prompt tokens a second; one request of {allowed.tokens} every {space_s:.0f} s",
        )
    if size.refused:
        talk.check("probe", "fail", size.refused)
        return None, evidence.model_copy(update={"not_sent": size.refused})
    return Visit(server, plan, deadline, talk, size, server.ordinary_ids(), space_s), evidence


def _send_and_read(visit: Visit, evidence: Evidence) -> Evidence:
    server, plan, deadline, talk, size = visit.server, visit.plan, visit.deadline, visit.talk, visit.size
    steps = tuple(step for step in STEPS if step.light or not plan.light)
    cost = sum(step.tokens(visit, evidence) for step in steps)
    talk.check(
        "probe",
        "note",
        f"will send {cost} prompt tokens, control included: {size.tokens} a request ({size.why}); "
        f"at most {cost * plan.attempts} if other traffic spoils them",
    )
    for step in steps:
        try:
            evidence = step.run(visit, evidence)
        except (TimedOut, NotReadyError) as error:
            # What was seen so far stands; the steps behind this one would ask a server that does not answer.
            evidence = evidence.model_copy(update={"silent": silence(error)})
            talk.check("server", "fail", evidence.silent)
            break
    if server.left_running:
        admin = "; a server with an admin key wants that: --admin-api-key-file FILE" if not server.admin_key else ""
        talk.check("abort", "note", f"{server.left_running} request(s) could not be dropped and run on{admin}")
    evidence = evidence.model_copy(update={"deadline_passed": deadline.passed()})
    return _with_log(visit, evidence if evidence.silent else _read_again(visit, evidence))


def _with_log(visit: Visit, evidence: Evidence) -> Evidence:
    """The server's log, last: the probe may have been the first to use the kernel."""
    status = evidence.status_after or evidence.status_before
    if "log" not in visit.plan.witnesses or status is None:
        return evidence
    since = min((rank.since for rank in status.ranks), default=0.0)
    with visit.talk.working("reading the server's log"):
        log = read_log(visit.plan.log, since)
    visit.talk.check("log", "note", log.problem or f"{len(log.lines)} LoadKernel line(s) in {log.source}")
    return evidence.model_copy(update={"log": log})


def _probe(visit: Visit, evidence: Evidence) -> Evidence:
    """A probe to every data-parallel rank."""
    attempts: list[Attempt] = []
    for place in targets(evidence.server.dp_size):
        attempts += until_fair(visit, RID_PREFIX, place)
    return evidence.model_copy(update={"attempts": tuple(attempts)})


def _control(visit: Visit, evidence: Evidence) -> Evidence:
    """The negative control, once every probe fired."""
    if not fired(evidence):
        return evidence
    status = visit.server.status()
    place = targets(evidence.server.dp_size)[0]
    if _may_be_forced(status):
        return evidence.model_copy(update={"controls": tuple(until_fair(visit, CONTROL_RID_PREFIX, place))})
    why = "the server does not allow forced fallbacks (FASTFILL_ALLOW_FORCED_FALLBACK=1, set by profiles)"
    if status and not all(rank.patched for rank in status.ranks):
        why = "this SGLang is unpatched: it has no gate that a request could ask for the fallback"
    evidence = evidence.model_copy(update={"no_control": why})
    impossible = companion.impossible(evidence) or ("--light sends no other" if visit.plan.light else "")
    if impossible:
        visit.talk.check("control", "note", f"not possible: {why}; {impossible}")
        return evidence.model_copy(update={"no_control": f"{why}; {impossible}"})
    with visit.talk.working("control: a fresh prompt beside a cached one"):
        evidence = evidence.model_copy(update={"companions": companion.control(visit, place)})
    judged = judge_control(evidence)
    visit.talk.check("control", {"passed": "ok", "failed": "fail"}.get(judged.status, "note"), judged.detail)
    return evidence


def _may_be_forced(status: Status | None) -> bool:
    # An unpatched SGLang has the variable and no gate that would look at it.
    return status is not None and all(rank.patched and rank.forced_fallback_allowed for rank in status.ranks)


def _control_tokens(visit: Visit, evidence: Evidence) -> int:
    if _may_be_forced(evidence.status_before):
        return visit.size.tokens
    return 0 if companion.impossible(evidence) or visit.plan.light else companion.tokens(visit)


class Step(NamedTuple):
    """A part of the proof that sends something.

    Attributes:
        run: Sends it, and returns the evidence with its part added.
        tokens: How many prompt tokens that takes where nothing is sent again.
        light: Whether a server that takes traffic is asked for it too.
    """

    run: Callable[[Visit, Evidence], Evidence]
    tokens: Callable[[Visit, Evidence], int]
    light: bool = False


STEPS = (
    Step(_probe, lambda visit, evidence: visit.size.tokens * len(targets(evidence.server.dp_size)), light=True),
    Step(_control, _control_tokens, light=True),
    Step(compare, cost),
    Step(load, load_cost),
    Step(trace, trace_tokens),
)
"""In the order in which they are run."""


def _read_again(visit: Visit, evidence: Evidence) -> Evidence:
    """Read the status and the counters again; the counters until they have caught up with the ring, or should have."""
    try:
        evidence = evidence.model_copy(update={"status_after": visit.server.status()})
        settle = Deadline(visiting.SETTLE_S)
        while True:
            counters = visit.server.counters()
            evidence = evidence.model_copy(update={"counters_after": counters})
            if counters is None or settle.passed() or _caught_up(evidence):
                return evidence
            time.sleep(POLL_S)
    except (TimedOut, NotReadyError) as error:
        visit.talk.check("server", "fail", silence(error))
        return evidence.model_copy(update={"silent": silence(error)})


def _caught_up(evidence: Evidence) -> bool:
    if evidence.counters_before is None or evidence.counters_after is None:
        return True
    rose = rise(evidence.counters_before, evidence.counters_after)
    owed = ring_calls(evidence.sent())
    return all(
        rose.get(rank, Counter())[key] >= count for rank, counts in owed.items() for key, count in counts.items()
    )
