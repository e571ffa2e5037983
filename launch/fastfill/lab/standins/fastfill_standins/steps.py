"""Records what the scheduler had received, finished and cached before each step, and the batch that it then made.

Only where FASTFILL_LAB_STEPS names a file: one JSON line a step, after a first line with the scheduler's settings.
Token ids go into it as one hash a page. ``fastfill.planning.steplog`` reads it.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from types import ModuleType
from typing import Any

STEPS = "FASTFILL_LAB_STEPS"


def scheduler(module: ModuleType) -> None:
    """Wrap the two methods through which every request and every batch goes."""
    if not os.environ.get(STEPS):
        return
    kind = module.Scheduler
    add, decide = kind._add_request_to_queue, kind.get_next_batch_to_run

    def adding(self: Any, req: Any, is_retracted: bool = False) -> Any:
        if not is_retracted:
            _recorder(self).arrived.append(req)
        return add(self, req, is_retracted=is_retracted)

    def deciding(self: Any, *arguments: Any, **named: Any) -> Any:
        recorder = _recorder(self)
        recorder.before()
        plan = decide(self, *arguments, **named)
        recorder.after(plan.batch_to_run)
        return plan

    kind._add_request_to_queue, kind.get_next_batch_to_run = adding, deciding


def _recorder(scheduler: Any) -> Recorder:
    recorder = getattr(scheduler, "_fastfill_steps", None)
    if recorder is None:
        recorder = scheduler._fastfill_steps = Recorder(scheduler)
    return recorder  # type: ignore[no-any-return]


class Recorder:
    """The log of one scheduler; with several ranks each has its own file."""

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.arrived: list[Any] = []
        self.live: list[Any] = []
        self.line: dict[str, Any] = {}
        self.busy = False
        self.step = 0
        rank = getattr(scheduler, "tp_rank", None) or getattr(getattr(scheduler, "ps", None), "tp_rank", 0) or 0
        name = os.environ[STEPS] + (f".{rank}" if rank else "")
        self.file = open(name, "w", buffering=1)  # noqa: PTH123, SIM115
        self.write(self.settings())

    def settings(self) -> dict[str, Any]:
        """What the scheduler resolved its flags to."""
        s = self.scheduler
        arguments = s.server_args
        import sglang

        return {
            "sglang": sglang.__version__,
            "chunk": s.chunked_prefill_size,
            "max_prefill": s.max_prefill_tokens,
            "page": s.page_size,
            "radix": not getattr(s.tree_cache, "disable", True),
            "cache": type(s.tree_cache).__name__,
            "hybrid": bool(s.tree_cache.supports_mamba()) or "Hybrid" in type(s.req_to_token_pool).__name__,
            "mixed": bool(s.is_mixed_chunk),
            "overlap": bool(s.enable_overlap),
            "max_running": s.max_running_requests,
            "slots": s.req_to_token_pool.size,
            "kv_tokens": s.max_total_num_tokens,
            "policy": str(arguments.schedule_policy),
            "first_ratio": s.new_token_ratio_tracker.init,
        }

    def before(self) -> None:
        """What has changed since the last step."""
        arrived, self.arrived = self.arrived, []
        ended = [req for req in self.live if req.finished()]
        self.live = [req for req in self.live if not req.finished()] + arrived
        self.line = {
            "arrived": [self.arrival(req) for req in arrived],
            "ended": [{"rid": req.rid, "out": len(req.output_ids), "key": self.key(req, whole=True)} for req in ended],
            "ratio": self.scheduler.new_token_ratio_tracker.current,
            "free": self.scheduler.token_to_kv_pool_allocator.available_size(),
        }

    def arrival(self, req: Any) -> dict[str, Any]:
        """A request as it is received."""
        parameters = req.sampling_params
        return {
            "rid": req.rid,
            "in": len(req.origin_input_ids),
            "max_new": parameters.max_new_tokens,
            "ignore_eos": bool(parameters.ignore_eos),
            "key": self.key(req),
        }

    def key(self, req: Any, *, whole: bool = False) -> str:
        """One hash a whole page of the prompt, or of prompt and answer; empty without a prefix cache."""
        page = self.scheduler.page_size
        if getattr(self.scheduler.tree_cache, "disable", True):
            return ""
        ids = [*req.origin_input_ids, *(req.output_ids if whole else ())]
        pages = (ids[at : at + page] for at in range(0, len(ids) // page * page, page))
        return "".join(hashlib.blake2b(repr(ids).encode(), digest_size=8).hexdigest() for ids in pages)

    def after(self, batch: Any) -> None:
        """The batch that was made; steps in which nothing happened are left out."""
        line = self.line
        if batch is not None or line["arrived"] or line["ended"] or self.busy:
            line["step"] = self.step
            line["time"] = round(time.monotonic(), 6)
            line["batch"] = None if batch is None else self.batch(batch)
            self.write(line)
        self.busy = batch is not None
        self.step += 1

    def batch(self, batch: Any) -> dict[str, Any]:
        """Kind and members: rid, prefix, extend."""
        mode = batch.forward_mode
        if not mode.is_extend():
            return {"kind": "decode", "members": sorted(req.rid for req in batch.reqs)}
        members = [[r.rid, p, e] for r, p, e in zip(batch.reqs, batch.prefix_lens, batch.extend_lens, strict=True)]
        return {"kind": "mixed" if mode.is_mixed() else "extend", "members": members}

    def write(self, document: dict[str, Any]) -> None:
        """One line."""
        self.file.write(json.dumps(document, separators=(",", ":")) + "\n")
