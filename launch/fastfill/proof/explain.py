"""Which condition kept calls off the path: from the probe's passes, else from what the rank says of its deployment."""

from __future__ import annotations

import re

from fastfill.explaining.facts import rank_heads
from fastfill.proof.evidence import Evidence
from fastfill.proof.findings import PATH_OFF, Finding, find, first_reason
from fastfill.proof.tally import Tally
from fastfill.proof.wire import RankStatus, Status
from sglang_fastfill.conditions import GQA_RATIOS, HEAD_DIM

_BUILT_IN_SINCE = (0, 5, 17)
FP8_CACHES = ("fp8_e4m3", "fp8_e5m2", "float8_e4m3fn")
"""``--kv-cache-dtype`` of an fp8 cache; ``auto`` is fp8 only for checkpoints that say so."""


def stopped_by(evidence: Evidence, ranks: tuple[Tally, ...]) -> Finding:
    """The reason to report for these ranks, which fell short.

    The gate's own word comes first. Where it was never asked (another backend, no patch), the deployment speaks.
    """
    given = {id for one in ranks for id in (*one.reasons, *(one.draft.reasons if one.draft else ()))}
    status = evidence.status_after or evidence.status_before
    states = {one.rank: one for one in status.ranks} if status else {}
    if not given:
        for one in ranks:
            state = states.get(one.rank)
            if state is not None:
                given |= deployment_reasons(state, status)
            # An unpatched backend has no gate to ask, and no flag would help it.
            if state is not None and _lacks_path(state) and "backend_not_aiter" not in given:
                return find("unpatched")
            if state is not None and not state.patched:
                given |= _reasons_of_the_model(state, evidence)
    found = first_reason(given)
    if found is not None:
        return find(found)._replace(seen=_seen(found, tuple(states[one.rank] for one in ranks if one.rank in states)))
    if ranks and all(one.layers == 0 for one in ranks):
        return find("no_attention_layers")
    if any(one.passes == 0 for one in ranks):
        return find("rank_unseen")
    return find("unexplained")


def with_a_way_off(finding: Finding, evidence: Evidence) -> Finding:
    """The finding with a fix that can be had: the kill switch is no help where it is thrown already, or not there."""
    status = evidence.status_after or evidence.status_before
    if status is None or PATH_OFF not in finding.fix:
        return finding
    if not all(rank.patched for rank in status.ranks):
        how = "an unpatched SGLang has no switch: start the server again with a KV cache that is not fp8"
    elif status.path.path == "off":
        how = "the switch is thrown and does not work: start the server again with fastfill serve --profile off"
    else:
        return finding
    return finding._replace(fix=f"{how}, and report it with the output of prove --json")


def deployment_reasons(state: RankStatus, status: Status | None) -> set[str]:
    """The deployment conditions that stop the path on a rank, by its own status."""
    failed = {id for id, condition in state.deployment.items() if condition.status == "fail"}
    if state.backend and "aiter" not in state.backend.lower():
        failed.add("backend_not_aiter")
    if not state.flag and not built_in(state):
        failed.add("flag_off")
    if status is not None and status.path.path == "off":
        failed.add("operator_off")
    return failed


def _seen(id: str, states: tuple[RankStatus, ...]) -> str:
    """What the ranks that fail a deployment condition have, each value once."""
    failed = [
        one.deployment[id].value for one in states if id in one.deployment and one.deployment[id].status == "fail"
    ]
    return ", ".join(dict.fromkeys(value for value in failed if value))


def _lacks_path(state: RankStatus) -> bool:
    return not state.patched and not built_in(state)


def _reasons_of_the_model(state: RankStatus, evidence: Evidence) -> set[str]:
    """What stops SGLang's own path, which gives no reasons, as far as the model and the flags say."""
    found = set()
    if state.model.head_dim not in (0, HEAD_DIM):
        found.add("head_dim_not_256")
    ranks = max(evidence.server.tp_size, 1)
    heads = rank_heads(state.model.num_attention_heads, state.model.num_key_value_heads or ranks, ranks)
    if state.model.num_key_value_heads and heads and heads[0] / heads[1] not in GQA_RATIOS:
        found.add("gqa_ratio")
    if evidence.server.kv_cache_dtype not in ("", *FP8_CACHES):
        found.add("kv_dtype_not_fp8")
    return found


def built_in(state: RankStatus) -> bool:
    """Whether the rank's SGLang has the path without our patch."""
    return not state.patched and version(state.sglang) >= _BUILT_IN_SINCE


def version(text: str) -> tuple[int, ...]:
    """The leading numbers of a version, for comparing releases; empty where there are none."""
    match = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in match.group().split(".")) if match else ()
