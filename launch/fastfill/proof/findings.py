"""Why a proof ended as it did, beyond the conditions of the gate: what is wrong with the server or with the proof."""

from __future__ import annotations

from typing import NamedTuple

from sglang_fastfill.conditions import BY_ID, ORDER


class Finding(NamedTuple):
    """A reason: a condition of the gate, or one of the findings below; ``seen`` is what this server has instead."""

    id: str
    meaning: str
    fix: str
    seen: str = ""


PATH_OFF = "fastfill path off"
_TURN_OFF = f"turn the path off now: {PATH_OFF} --url URL; then, where the server runs: fastfill selfcheck"
_FINDINGS = (
    Finding(
        "plugin_not_attached",
        "the server has no /fastfill/status: the fastfill plugin is not attached",
        "install the fastfill distribution in the server's environment, leave SGLANG_PLUGINS unset, and restart it",
    ),
    Finding(
        "metrics_off",
        "the server has no /metrics, so nothing counts its calls",
        "restart the server with --enable-metrics (fastfill serve sets it)",
    ),
    Finding(
        "hook_missing",
        "the witness is not attached to a function that it must count",
        "use an aiter that has the function, and look for 'fastfill' in the server's first log lines",
    ),
    Finding(
        "rank_without_witness",
        "a rank of this server never reported: its calls are unseen",
        "install the fastfill distribution in the environment that every rank runs in, and look for 'fastfill' in the "
        "server's log",
    ),
    Finding(
        "several_servers",
        "different processes answered: a load balancer is in front, or the server restarted during the proof",
        "prove each server at its own address, once it is up",
    ),
    Finding(
        "probe_unseen",
        "the probe was answered, but not by the process that was asked about it, or that process could not note it",
        "prove the server itself, with no proxy, cache or load balancer in between; if there is none, look for "
        "'fastfill' in its log: its state folder may be full, gone or not writable",
    ),
    Finding(
        "probe_rewritten",
        "the prompt that was prefilled is not the prompt that was sent",
        "prove the server itself, without a proxy that edits requests and without --allow-auto-truncate",
    ),
    Finding(
        "counters_contradict_ring",
        "the counters rose by less than the passes that the same server reports",
        "look for an error of prometheus_client in the server's log, and restart it",
    ),
    Finding(
        "witnesses_disagree",
        "one witness saw the kernel run where another says that it did not",
        "believe neither: report it with the folder of prove --evidence DIR",
    ),
    Finding(
        "coverage_low",
        "less of the attention work takes the path than --min-coverage asks for",
        "look at what stopped the rest; mostly it is the scheduler: --chunked-prefill-size -1",
    ),
    Finding(
        "coverage_unknown",
        "the path's share of the attention work could not be measured",
        "give more time: --deadline SECONDS, or try when the server is quieter",
    ),
    Finding(
        "too_many_calls",
        "more fast-path calls were counted than the model has full-attention layers",
        "report it: the witness counts twice, or the model's config is not the one that is served",
    ),
    Finding(
        "gate_contradicts_witness",
        "the gate says that layers left the path and the witness saw the same layers on it",
        "report it with the output of prove --json",
    ),
    Finding(
        "gate_ignores_condition",
        "calls took the fast path although a condition should have stopped them",
        f"turn the path off ({PATH_OFF} --url URL) and report it with the output of prove --json",
    ),
    Finding(
        "layers_disagree",
        "the model's config.json and the server name different numbers of full-attention layers",
        "give --model-config the config.json of the model that is served",
    ),
    Finding(
        "control_fired",
        "the negative control took the fast path, so the gate or the witness cannot be trusted",
        "report it with the output of prove --json",
    ),
    Finding(
        "control_unexplained",
        "the negative control stayed off the path, but not because it was asked to",
        "report it with the output of prove --json",
    ),
    Finding(
        "answers_not_finite",
        "the fast path answers with values that are not finite, the fallback does not",
        _TURN_OFF,
    ),
    Finding(
        "answers_differ",
        "the fast path answers differently from the fallback, by more than fp8 explains",
        _TURN_OFF,
    ),
    Finding(
        "needles_lost",
        "the fast path loses what is hidden in a long prompt, the fallback finds it",
        _TURN_OFF,
    ),
    Finding(
        "topology_refused",
        "several nodes, pipeline parallelism or prefill/decode disaggregation cannot be proven yet",
        "serve on one node with --pp-size 1 and without --disaggregation-mode",
    ),
    Finding(
        "unpatched",
        "this SGLang lacks the path and is not patched",
        "fastfill patch apply --target DIR in the server's environment, or use the image",
    ),
    Finding(
        "no_attention_layers",
        "the model has no full-attention layer",
        "none: the path is for full attention only",
    ),
    Finding(
        "unexplained",
        "attention ran, not on the assembly kernel for head dim 256, and no condition says why",
        "look at the calls in prove --json: another kernel name points at the aiter build",
    ),
    Finding(
        "rank_unseen",
        "a rank remembers no pass of the probe",
        "look at the server's log for that rank",
    ),
    Finding(
        "no_fair_trial",
        "every probe shared its pass with other traffic, or was cached",
        "try again when the server is quieter, or give more time: --deadline SECONDS",
    ),
    Finding(
        "deadline",
        "the time was up before a probe was answered and seen",
        "give more time: --deadline SECONDS, or try when the server is quieter",
    ),
    Finding(
        "server_silent",
        "a page that the proof rests on was not answered in time",
        "look at the server's log and load, and try when it is quieter",
    ),
    Finding(
        "kv_scales",
        "the checkpoint's k or v scales are not 1, and this release's own path casts raw values and descales by them",
        "serve with a patched stack of this kit, which descales right, or a checkpoint without such scales",
    ),
    Finding(
        "probe_refused",
        "the server refused the probe",
        "read the server's words above",
    ),
    Finding(
        "prompt_too_long",
        "the probe is longer than the context",
        "leave --prompt-tokens out, or make it smaller",
    ),
)

FINDINGS: dict[str, Finding] = {finding.id: finding for finding in _FINDINGS}


def find(id: str) -> Finding:
    """A finding, or a condition of the gate seen as one; an id that this version does not know explains itself."""
    if id in FINDINGS:
        return FINDINGS[id]
    if id in BY_ID:
        condition = BY_ID[id]
        return Finding(condition.id, condition.meaning, condition.fix)
    return Finding(id, "the server names a condition that this version of fastfill does not know", "update fastfill")


def first_reason(ids: set[str]) -> str | None:
    """The reason to report: the earliest in the conditions' order, ids that we do not know last; None for none."""
    return min(ids, key=lambda id: (ORDER.get(id, len(ORDER)), id), default=None)
