"""What a verdict does not say but an operator should hear: remarks, and the next command."""

from __future__ import annotations

from fastfill.proof.evidence import Evidence
from fastfill.proof.explain import built_in, version
from fastfill.proof.verdict import Verdict
from sglang_fastfill.conditions import FLAG, RIVAL_FLAG

_GATHERS_SINCE = (0, 5, 19)


def notes(evidence: Evidence) -> list[str]:
    """Remarks on the server's settings, each once."""
    status = evidence.status_after or evidence.status_before
    found: list[str] = []
    for rank in status.ranks if status else ():
        if not rank.patched:
            what = "its own path, without our switch, guards and reasons" if built_in(rank) else "no such path"
            found.append(f"SGLang {rank.sglang} is unpatched: it has {what}")
        found += [f"{name} is set and does nothing; the flag is {FLAG}" for name in rank.near_miss]
        if rank.rival == "warning":
            found.append(f"{RIVAL_FLAG} is set; this SGLang does not read it")
        missing = sorted(target for target, attached in rank.hooks.items() if not attached)
        if missing:
            found.append(f"{rank.rank} does not count {', '.join(missing)}")
    if status and status.path.path == "off":
        path = status.path
        found.append(f"the path was turned off by {path.who} at {path.when}: {path.why or 'no reason given'}")
    chunk = evidence.server.chunked_prefill_size
    if version(evidence.server.version) >= _GATHERS_SINCE:
        if evidence.server.disable_radix_cache or (chunk is not None and chunk <= 0):
            found.append(
                f"on SGLang {evidence.server.version} a batch with a prefix stays on the path: neither "
                "--disable-radix-cache nor --chunked-prefill-size -1 is needed for it"
            )
    elif chunk is not None and chunk > 0:
        found.append(
            f"--chunked-prefill-size is {chunk}: what a longer prompt, or a prompt that does not fit beside others, "
            "has after its first chunk leaves the path before SGLang 0.5.19"
        )
    return list(dict.fromkeys(found))


def next_step(evidence: Evidence, verdict: Verdict) -> str:
    """The next command, or what else to do."""
    again = f"fastfill prove --url {evidence.url}"
    if verdict.name == "FIRED":
        if verdict.answers.status == "cannot_say" and _unpatched(evidence):
            return f"fastfill explain --url {evidence.url}: whether this release answers right with the model's scales"
        if verdict.control.status == "not_possible" and not _unpatched(evidence):
            return "start with FASTFILL_ALLOW_FORCED_FALLBACK=1 to have the negative control as well"
        return "none: the path fires; watch fastfill:prefill_attention_work_total for its share under your traffic"
    if verdict.name == "DISAGREE":
        return f"{again} --witness counters,log,trace --evidence DIR, and report it with that folder"
    if verdict.reason is not None and verdict.reason.fix.startswith("none"):
        return f"none that helps this model or these settings; after a change: {again}"
    if verdict.reason is not None and verdict.reason.id in ("deadline", "no_fair_trial", "coverage_unknown"):
        return f"{again} --deadline {2 * evidence.deadline_s:.0f}"
    return f"apply the fix, then: {again}"


def _unpatched(evidence: Evidence) -> bool:
    status = evidence.status_after or evidence.status_before
    return status is not None and not all(rank.patched for rank in status.ranks)
