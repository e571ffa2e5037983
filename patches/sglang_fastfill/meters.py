"""The witness's numbers on SGLang's own /metrics.

prometheus_client is imported when the first pass ends, in a scheduler: importing it before SGLang sets its multiprocess
directory empties SGLang's own /metrics. Info metrics vanish in multiprocess mode, so build_info is a gauge of 1.
"""

from __future__ import annotations

import os
from typing import Any

from sglang_fastfill.ledger import Call
from sglang_fastfill.work import Share

RANK_LABELS = ("pp_rank", "dp_rank", "tp_rank")


def enabled() -> bool:
    """Whether SGLang exports metrics: it names the multiprocess directory before it starts its schedulers."""
    return bool(os.environ.get("PROMETHEUS_MULTIPROC_DIR"))


class Meters:
    """Counters and gauges of one rank."""

    def __init__(self, rank: dict[str, int]) -> None:
        from prometheus_client import Counter, Gauge

        self._rank = (str(rank["pp"]), str(rank["dp"]), str(rank["tp"]))
        self._calls = Counter(
            "fastfill:prefill_attention_calls",
            "Prefill attention calls by function, kernel reached, head dim, and whether a sequence had a prefix.",
            ("fn", "kernel", "head_dim", "draft", "prefix", *RANK_LABELS),
        )
        self._skips = Counter(
            "fastfill:prefill_skips",
            "Attention-layer calls that the gate kept off the fast path, by the first condition that held.",
            ("reason", *RANK_LABELS),
        )
        self._tokens = Counter(
            "fastfill:prefill_tokens",
            "Prefilled tokens by kernel, off the fast path by reason, and by whether a sequence had a prefix.",
            ("kernel", "reason", "prefix", *RANK_LABELS),
        )
        self._work = Counter(
            "fastfill:prefill_attention_work",
            "Query-key pairs per head, summed over layer calls, labelled as fastfill:prefill_tokens.",
            ("kernel", "reason", "prefix", *RANK_LABELS),
        )
        self._saturated = Counter(
            "fastfill:saturated",
            "Elements of k and v beyond the fp8 range that were saturated (or NaN) before the KV write.",
            RANK_LABELS,
        )
        self._hooks = Gauge(
            "fastfill:hook_attached",
            "1 when the witness is attached to this function, 0 when it is not.",
            ("target", *RANK_LABELS),
            multiprocess_mode="livemostrecent",
        )
        self._build = Gauge(
            "fastfill:build_info",
            "Always 1; the labels say what runs.",
            ("version", "sglang", "patched", *RANK_LABELS),
            multiprocess_mode="livemostrecent",
        )
        self._last_saturated = 0

    def identity(self, version: str, sglang: str, patched: bool, hooks: dict[str, bool]) -> None:
        """Set what does not change: versions and hooks."""
        self._build.labels(version, sglang, str(patched).lower(), *self._rank).set(1)
        for target, attached in hooks.items():
            self._hooks.labels(target, *self._rank).set(int(attached))

    def add(
        self,
        calls: dict[Call, int],
        reasons: dict[str, int],
        shares: list[Share],
        *,
        draft: bool,
        prefix: bool,
        tokens: int,
        work: float,
        saturated: int,
    ) -> None:
        """Add one pass.

        Args:
            calls: Attention calls by function, kernel and head dim.
            reasons: The gate's reasons, per layer call.
            shares: The pass's layer calls by kernel and reason.
            draft: The pass was the draft model's.
            prefix: A sequence of the pass had a prefix. From SGLang 0.5.19 on such passes can fire.
            tokens: New tokens of the pass.
            work: Query-key pairs per head and layer.
            saturated: Saturated elements since the server started.
        """
        flag, cached = str(draft).lower(), str(prefix).lower()
        for (function, kernel, dim), count in calls.items():
            self._calls.labels(function, kernel, str(dim), flag, cached, *self._rank).inc(count)
        for reason, count in reasons.items():
            self._skips.labels(reason, *self._rank).inc(count)
        layer_calls = sum(calls.values())
        for share in shares:
            self._tokens.labels(share.kernel, share.reason, cached, *self._rank).inc(tokens * share.fraction)
            self._work.labels(share.kernel, share.reason, cached, *self._rank).inc(
                work * share.fraction * max(layer_calls, 1)
            )
        if saturated > self._last_saturated:
            self._saturated.labels(*self._rank).inc(saturated - self._last_saturated)
            self._last_saturated = saturated


def build(rank: dict[str, int]) -> Any:
    """The rank's meters, None when SGLang exports no metrics."""
    return Meters(rank) if enabled() else None
