"""Tries candidates on a trace, and recommends one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from fastfill.planning.assumptions import Assumptions
from fastfill.planning.candidate import Candidate
from fastfill.planning.coverage import gate
from fastfill.planning.deployment import Deployment
from fastfill.planning.figures import TimeModel
from fastfill.planning.request import Batch, Request
from fastfill.planning.simulate import Outcome, Simulation
from fastfill.planning.source import Closed, Open, Source
from fastfill.planning.trace import Trace
from fastfill.serving.memory import Plan

Objective = Literal["ttft_p99", "throughput", "coverage"]
_KEPT_SPANS = 1500
_TIE = 0.01
_PARTING = 0.01
_CROWDED = 0.9


class Span(NamedTuple):
    """One prefill pass on the timeline, in seconds."""

    began: float
    seconds: float
    tokens: int
    reason: str


@dataclass(slots=True)
class Tried:
    """A candidate and what came of it.

    Attributes:
        candidate: The flags.
        outcome: None where it cannot be tried.
        memory: What a GPU must keep free for it.
        kv_tokens: The KV pool that is left, in tokens of one rank.
        refused: Why it is not tried or not recommended; "" if it is.
        spans: The first prefill passes.
    """

    candidate: Candidate
    outcome: Outcome | None = None
    memory: Plan | None = None
    kv_tokens: int = 0
    refused: str = ""
    spans: list[Span] = field(default_factory=list)

    def ttft(self, share: float) -> float | None:
        """A percentile of the time to the first token, in seconds."""
        if self.outcome is None or not self.outcome.ttft:
            return None
        ordered = sorted(self.outcome.ttft)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)]

    def throughput(self) -> float:
        """Prompt and answer tokens a second."""
        if self.outcome is None or not self.outcome.seconds:
            return 0.0
        return (self.outcome.tokens_in + self.outcome.tokens_out) / self.outcome.seconds


def try_candidate(
    candidate: Candidate, deployment: Deployment, trace: Trace, times: TimeModel, assumptions: Assumptions
) -> Tried:
    """Run a trace through the scheduler's model with a candidate's flags."""
    tried = Tried(candidate)
    if candidate.radix and not trace.block:
        tried.refused = "the trace has no prefix hashes: what the radix cache would find is not known"
        return tried
    if candidate.chunk > 0 and candidate.chunk // deployment.ranks % deployment.page:
        tried.refused = f"the chunk, divided by {deployment.ranks} ranks, is no multiple of the page size"
        return tried
    longest = deployment.context or deployment.model.context or trace.longest()
    tried.memory = deployment.memory(candidate, longest, assumptions)
    settings = deployment.settings(candidate, tried.memory, assumptions)
    tried.kv_tokens = settings.kv_tokens
    if settings.kv_tokens < 2 * settings.page:
        tried.refused = f"a pass of {tried.memory.single_pass_tokens} tokens leaves no room for a KV cache"
        return tried
    if candidate.radix:
        assumptions.text("answers_shared", ("no",))

    def watch(began: float, seconds: float, batch: Batch, reason: str) -> None:
        if len(tried.spans) < _KEPT_SPANS:
            tokens = sum(member[2] for member in batch.members)
            tried.spans.append(Span(began, seconds, tokens, reason))

    simulation = Simulation(
        deployment.rules,
        settings,
        times.times,
        gate(
            deployment.rules,
            path=candidate.path,
            q_heads=deployment.q_heads(),
            stopped_by=deployment.stopped_by(candidate),
        ),
        ranks=deployment.ranks,
        blocking=times.blocking,
        context=longest,
        watch=watch,
    )
    tried.outcome = simulation.run(_source(trace, settings.page, candidate.radix, assumptions))
    if tried.outcome.aborted:
        tried.refused = f"{tried.outcome.aborted} requests are never answered"
    if tried.outcome.cut_short:
        tried.refused = f"SGLang prefills only a part of {tried.outcome.cut_short} prompts, and answers from that"
    return tried


def _source(trace: Trace, page: int, keyed: bool, assumptions: Assumptions) -> Source:
    asked = 0
    if any(value < 0 for value in trace.max_new):
        text = assumptions.text("max_new_tokens")
        asked = 0 if text == "answered" else int(assumptions.number("max_new_tokens"))
    fixed = any(value < 0 for value in trace.ignore_eos) and assumptions.text("ignore_eos", ("yes", "no")) == "yes"
    order = trace.in_order() if trace.timed else None
    requests: Iterator[Request] = trace.requests(max_new=asked, ignore_eos=fixed, page=page, keyed=keyed, order=order)
    if trace.timed:
        return Open(requests)
    clients = trace.clients or int(assumptions.number("clients"))
    return Closed(requests, clients)


def recommend(tried: list[Tried], objective: Objective) -> tuple[Tried | None, str]:
    """The candidate that serves the objective best, and why. Within 1 % the one with more coverage and less memory.

    One that turns away prompts which another can serve has an easier load, and is not compared.
    """
    usable = [one for one in tried if not one.refused and one.outcome is not None and one.outcome.requests]
    if not usable:
        return None, "no candidate can serve this traffic"
    fewest = min(_turned_away(one) for one in usable)
    usable = [one for one in usable if _turned_away(one) == fewest]
    scores: dict[Objective, Callable[[Tried], float]] = {
        "ttft_p99": lambda one: -(one.ttft(0.99) or 0.0),
        "throughput": lambda one: one.throughput(),
        "coverage": _work,
    }
    score = scores[objective]
    best = max(score(one) for one in usable)
    near = [one for one in usable if score(one) >= best - abs(best) * _TIE]
    chosen = max(near, key=lambda one: (round(_work(one), 3), -one.outcome.largest if one.outcome else 0))
    return chosen, _why(chosen, usable, objective, len(near))


def _turned_away(one: Tried) -> int:
    return len(one.outcome.refused) if one.outcome else 0


def _work(one: Tried) -> float:
    return one.outcome.coverage.of_work if one.outcome else 0.0


def _why(chosen: Tried, usable: list[Tried], objective: Objective, near: int) -> str:
    p99 = chosen.ttft(0.99) or 0.0
    facts = {
        "ttft_p99": f"the lowest 99th percentile of the time to the first token, {p99 * 1e3:.0f} ms",
        "throughput": f"the highest throughput, {chosen.throughput():.0f} tokens/s",
        "coverage": f"the most attention work on the fast path, {_work(chosen):.1%}",
    }
    why = f"it has {facts[objective]} of {len(usable)} candidates"
    if near > 1:
        why += f"; {near} are within 1 % of that, and of those it has the most work on the fast path"
    if objective != "coverage":
        why += f"; {_work(chosen):.1%} of the attention work is on the fast path"
    reasons = chosen.outcome.coverage.reasons() if chosen.outcome else {}
    if reasons:
        worst = max(reasons, key=lambda reason: reasons[reason])
        why += f" ({worst} keeps {reasons[worst]:.1%} off it)"
    return why + _parting(chosen, usable, objective)


def _parting(chosen: Tried, usable: list[Tried], objective: Objective) -> str:
    """What the candidate with the most coverage would cost, where that is another one."""
    most = max(usable, key=lambda one: (_work(one), -(one.ttft(0.99) or 0.0)))
    if objective == "coverage" or _work(most) - _work(chosen) < _PARTING:
        return ""
    what = {
        "ttft_p99": f"a 99th percentile of {(most.ttft(0.99) or 0.0) * 1e3:.0f} ms",
        "throughput": f"{most.throughput():.0f} tokens/s",
    }[objective]
    return (
        f"; coverage and this objective part ways here: {most.candidate.name()} has {_work(most):.1%} on the fast path "
        f"and {what}{_because(chosen, most)} (--objective coverage)"
    )


def _because(chosen: Tried, most: Tried) -> str:
    """Why more coverage does not serve better, where the two runs show it."""
    if chosen.outcome is None or most.outcome is None:
        return ""
    found = []
    if most.kv_tokens < chosen.kv_tokens and most.outcome.kv_peak > _CROWDED * most.kv_tokens:
        passes = most.memory.single_pass_tokens if most.memory is not None else most.outcome.largest
        found.append(
            f"passes of {passes} tokens leave it a KV pool of {most.kv_tokens} tokens (here {chosen.kv_tokens}), which "
            "fills up, and requests wait"
        )
    if chosen.outcome.hit_tokens > most.outcome.hit_tokens:
        share = chosen.outcome.hit_tokens / max(chosen.outcome.tokens_in, 1)
        found.append(f"it computes anew what the radix cache saves here, {share:.0%} of the prompts' tokens")
    return f", for {'; and '.join(found)}" if found else ""
