"""All that a proof saw, and nothing that it concluded: the verdict is a function of this alone."""

from __future__ import annotations

from fastfill.proof.answers_seen import AnswersEvidence
from fastfill.proof.counters import Counters
from fastfill.proof.load import LoadEvidence
from fastfill.proof.loglines import LogEvidence
from fastfill.proof.sent import Attempt
from fastfill.proof.traces import TraceEvidence
from fastfill.proof.wire import ServerFacts, Status, Wire

__all__ = ["Attempt", "Evidence"]


class Evidence(Wire):
    """What was read and sent, in the order of its fields.

    Attributes:
        status_before: None when the server has no plugin.
        counters_before: None when the server runs without metrics.
        config_layers: Full-attention layers by the model's own config.json; None where it could not be read.
        not_sent: Why no probe could be sent, empty otherwise (longer than the context).
        attempts: The probes, in order.
        controls: The negative controls, in order; empty where none was sent.
        no_control: Why no control was sent.
        companions: The controls that were sent beside a cached prompt, where no fallback may be asked for.
        answers: What was seen of the server's answers; None where none were compared.
        load: Several prompts at once; None where none were sent.
        min_coverage: The share of the attention work that the operator wants on the path.
        trace: What the profiler saw; None where it was not asked.
        log: What the server's log holds; None where it was not asked.
        deadline_s: How long the proof was given, in seconds.
        deadline_passed: Whether that ran out.
        silent: What the server did not answer in time beside the requests: a page that the proof rests on. Empty
            where all were answered.
        named: The witnesses that the operator asked for by name.
        kv_scales: A k or v scale that is not 1, on a release whose own path is wrong then; empty otherwise.
    """

    url: str
    server: ServerFacts
    status_before: Status | None
    counters_before: Counters | None = None
    config_layers: int | None = None
    not_sent: str = ""
    attempts: tuple[Attempt, ...] = ()
    controls: tuple[Attempt, ...] = ()
    no_control: str = ""
    companions: tuple[Attempt, ...] = ()
    answers: AnswersEvidence | None = None
    load: LoadEvidence | None = None
    trace: TraceEvidence | None = None
    min_coverage: float | None = None
    status_after: Status | None = None
    counters_after: Counters | None = None
    log: LogEvidence | None = None
    deadline_s: float = 0.0
    deadline_passed: bool = False
    silent: str = ""
    named: tuple[str, ...] = ()
    kv_scales: str = ""

    def sent(self) -> tuple[Attempt, ...]:
        """Every request of the proof, whatever it was for."""
        return (
            *self.attempts,
            *self.controls,
            *self.companions,
            *(self.answers.sent() if self.answers else ()),
            *(self.load.sent() if self.load else ()),
            *(self.trace.sent() if self.trace else ()),
        )
