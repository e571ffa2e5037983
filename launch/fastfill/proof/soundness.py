"""What makes a proof worthless, whatever was counted: each rule returns a finding's id and the detail, or None."""

from __future__ import annotations

from collections import Counter

from fastfill.proof.counters import rise
from fastfill.proof.evidence import Evidence
from fastfill.proof.layout import unseen
from fastfill.proof.tally import Tally, ring_calls
from fastfill.proof.wire import Rank, RankStatus, Status

Unsound = tuple[str, str]

# Without the function there is nothing to hook, and nothing that could fire unseen.
_EXPLAINS_MISSING_HOOK = ("backend_not_aiter", "kernel_missing")
# Conditions of single layers: beside full-attention layers that fire, a model may have others that never can.
_OTHER_LAYERS = ("sliding_window", "attention_sinks", "cross_attention", "no_kv_input")


def before_probe(evidence: Evidence) -> Unsound | None:
    """What is known before anything is sent: no plugin, a topology that cannot be proven, no metrics."""
    if evidence.status_before is None:
        return "plugin_not_attached", "the server does not know /fastfill/status"
    server = evidence.server
    if server.nnodes > 1 or server.pp_size > 1 or server.disaggregation_mode not in ("null", ""):
        return (
            "topology_refused",
            f"nnodes {server.nnodes}, pp_size {server.pp_size}, disaggregation {server.disaggregation_mode}",
        )
    if evidence.counters_before is None:
        return "metrics_off", "the server does not know /metrics"
    return None


def identity(evidence: Evidence) -> Unsound | None:
    """Did one and the same set of processes answer every question?"""
    pids: dict[Rank, int] = {}
    for where, seen in _sightings(evidence):
        for rank, pid in seen.items():
            if pid and pids.setdefault(rank, pid) != pid:
                return "several_servers", f"{rank} is process {pids[rank]} and, in {where}, process {pid}"
    before, after = evidence.status_before, evidence.status_after
    if before and after:
        lost = {one.rank for one in before.ranks} - {one.rank for one in after.ranks}
        if lost:
            return "several_servers", f"{_named(lost)} reported before the probe and not after it"
    return None


def measurement(evidence: Evidence, ranks: tuple[Tally, ...]) -> Unsound | None:
    """Can the counts be trusted? Asked once a fair probe was seen."""
    status = evidence.status_after
    if status is None:
        return "several_servers", "the server knew /fastfill/status before the probe and not after it"
    return (
        _missing_ranks(evidence, status)
        or _missing_hooks(status, ranks)
        or _layers(evidence, status)
        or _counters(evidence)
        or _counts(ranks)
    )


def _sightings(evidence: Evidence) -> list[tuple[str, dict[Rank, int]]]:
    found: list[tuple[str, dict[Rank, int]]] = []
    for where, status in (("the first status", evidence.status_before), ("the last status", evidence.status_after)):
        if status is not None:
            found.append((where, {one.rank: one.pid for one in status.ranks}))
    for attempt in evidence.sent():
        found.append((f"the passes of {attempt.rid}", {one.rank: one.pid for one in attempt.ranks}))
    return found


def _missing_ranks(evidence: Evidence, status: Status) -> Unsound | None:
    lost = unseen(evidence)
    if lost:
        return "rank_without_witness", f"{_named(set(lost))} never reported; {_named_all(status)} did"
    return None


def _missing_hooks(status: Status, ranks: tuple[Tally, ...]) -> Unsound | None:
    fired = any(one.observed for one in ranks)
    for one in status.ranks:
        missing = [target for target, attached in one.hooks.items() if not attached]
        if missing and (fired or not _explained(one)):
            return "hook_missing", f"{one.rank} does not count {', '.join(sorted(missing))}"
        if not one.hooks:
            return "hook_missing", f"{one.rank} names no function that it counts"
    return None


def _explained(one: RankStatus) -> bool:
    return any(id in one.deployment and one.deployment[id].status == "fail" for id in _EXPLAINS_MISSING_HOOK)


def _layers(evidence: Evidence, status: Status) -> Unsound | None:
    if evidence.config_layers is None or evidence.server.pp_size > 1:
        return None
    for one in status.ranks:
        if one.model.attention_layers != evidence.config_layers:
            return (
                "layers_disagree",
                f"config.json has {evidence.config_layers}, {one.rank} says {one.model.attention_layers}",
            )
    return None


def _counters(evidence: Evidence) -> Unsound | None:
    before, after = evidence.counters_before, evidence.counters_after
    if before is None or after is None:
        return "metrics_off", "the server does not know /metrics any more"
    rose = rise(before, after)
    for rank, counts in rose.items():
        for key, value in counts.items():
            if value < 0:
                return "several_servers", f"the counter of {rank} {key.fn} {key.kernel} went backwards by {-value}"
    for rank, counts in ring_calls(evidence.sent()).items():
        for key, owed in counts.items():
            counted = rose.get(rank, Counter())[key]
            if counted < owed:
                return (
                    "counters_contradict_ring",
                    f"{rank} {key.fn} {key.kernel} hd{key.head_dim}: {owed} call(s) in the ring, {counted} counted",
                )
    return None


def _counts(ranks: tuple[Tally, ...]) -> Unsound | None:
    for one in ranks:
        if one.observed > one.expected:
            return "too_many_calls", f"{one.rank}: {one.observed} calls for {one.expected} expected"
        skipped = sum(count for reason, count in one.reasons.items() if reason not in _OTHER_LAYERS)
        if one.observed and one.observed + skipped > one.expected:
            return (
                "gate_contradicts_witness",
                f"{one.rank}: {one.observed} calls fired and {skipped} left the path, of {one.expected} in all",
            )
    return None


def _named(ranks: set[Rank]) -> str:
    return ", ".join(str(rank) for rank in sorted(ranks, key=Rank.key)) or "none"


def _named_all(status: Status) -> str:
    return _named({one.rank for one in status.ranks})
