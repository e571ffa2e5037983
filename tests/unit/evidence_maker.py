"""Builds evidence piece by piece: the good case, which a test then spoils in one place."""

from __future__ import annotations

from collections import Counter
from typing import Any

from fastfill.proof.counters import CALLS, Counters, Sample
from fastfill.proof.evidence import Attempt, Evidence
from fastfill.proof.wire import KernelCalls, Model, Pass, Rank, RankPasses, RankStatus, ServerFacts, Status

FN = "flash_attn_varlen_fp8_pertensor_func"
TOKENS = 400


def rank(tp: int = 0, dp: int = 0) -> Rank:
    return Rank(pp=0, dp=dp, tp=tp)


def asm(count: int, *, kernel: str = "asm", head_dim: int = 256) -> KernelCalls:
    return KernelCalls(fn=FN, kernel=kernel, head_dim=head_dim, count=count)


def one_pass(rid: str, fired: int = 2, *, number: int = 1, **more: Any) -> Pass:
    """A pass that the request has to itself."""
    reasons = more.pop("reasons", {})
    values = {
        "number": number,
        "rids": (rid,),
        "prefix": (0,),
        "extend": (TOKENS,),
        "mode": "EXTEND",
        "calls": (asm(fired),) if fired else (KernelCalls(fn="ck", kernel="ck", head_dim=256, count=2),),
        "reasons": reasons,
    }
    return Pass(**{**values, **more})


def attempt(rid: str, *per_rank: tuple[Pass, ...], dp: int | None = None, **more: Any) -> Attempt:
    """A request with each tensor-parallel rank's passes."""
    ranks = tuple(RankPasses(rank=rank(tp, dp or 0), pid=100 + tp, passes=passes) for tp, passes in enumerate(per_rank))
    values: dict[str, Any] = {"rid": rid, "dp": dp, "prompt_tokens": TOKENS, "answer": "answered", "ranks": ranks}
    return Attempt(**{**values, **more})


def rank_status(tp: int = 0, **more: Any) -> RankStatus:
    values: dict[str, Any] = {
        "rank": rank(tp),
        "pid": 100 + tp,
        "sglang": "0.5.16",
        "patched": True,
        "flag": True,
        "backend": "AiterAttnBackend",
        "hooks": {"aiter." + FN: True},
        "model": Model(attention_layers=2, num_hidden_layers=2, head_dim=256),
        "forced_fallback_allowed": True,
        "context_len": 4096,
    }
    return RankStatus(**{**values, **more})


def status(*ranks: RankStatus, **more: Any) -> Status:
    return Status(schema_name="fastfill.status/1", ranks=ranks or (rank_status(),), **more)


def counters_for(attempts: tuple[Attempt, ...], base: int = 10) -> Counters:
    """What the counters read after these requests, having read ``base`` before."""
    totals: Counter[tuple[int, int, int, str, str, int, bool]] = Counter()
    for one in attempts:
        for ranked in one.ranks:
            for each in ranked.passes:
                for call in each.calls:
                    key = (*ranked.rank.key(), call.fn, call.kernel, call.head_dim, each.draft)
                    totals[key] += call.count
    samples = []
    for (pp, dp, tp, fn, kernel, dim, draft), count in totals.items():
        labels = {"fn": fn, "kernel": kernel, "head_dim": str(dim), "draft": str(draft).lower()}
        labels |= {"pp_rank": str(pp), "dp_rank": str(dp), "tp_rank": str(tp)}
        samples.append(Sample(name=CALLS, labels=labels, value=count + base))
    return Counters(samples=tuple(samples))


def with_value(counters: Counters, value: float) -> Counters:
    """The same samples, all at one value."""
    return Counters(samples=tuple(one.model_copy(update={"value": value}) for one in counters.samples))


def evidence(**more: Any) -> Evidence:
    """A proof that is FIRED unless a field is replaced; the counters follow the requests unless given."""
    tp = more.pop("tp", 1)
    attempts = more.pop("attempts", (attempt("p1", *((one_pass("p1"),) for _ in range(tp))),))
    off = {"fired": 0, "reasons": {"forced_fallback": 2}, "number": 2}
    controls = more.pop(
        "controls",
        (attempt("fastfill-fallback-probe-1", *((one_pass("fastfill-fallback-probe-1", **off),) for _ in range(tp))),),
    )
    parts = [more[name] for name in ("answers", "trace") if more.get(name) is not None]
    after = counters_for((*attempts, *controls, *(one for part in parts for one in part.sent())))
    states = status(*(rank_status(index) for index in range(tp)))
    values: dict[str, Any] = {
        "url": "http://h:1",
        "server": ServerFacts(version="0.5.16", tp_size=tp),
        "status_before": states,
        "status_after": states,
        "counters_before": with_value(after, 10),
        "counters_after": after,
        "attempts": attempts,
        "controls": controls,
        "deadline_s": 60.0,
    }
    return Evidence(**{**values, **more})
