"""Watches what SGLang calls and what aiter dispatches to, without taking the gate's word.

Two levels: the functions that SGLang calls, and aiter's own dispatch points, module globals that it looks up at each
call. A function's name is not the kernel: SGLang 0.5.22 calls the fp8 function for head dim 128 too, and ENABLE_CK=0
sends it to Triton. Each function is hooked once, under the name ``aiter.<name>``; SGLang's hook registry rebinds the
object wherever it was imported.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

from sglang_fastfill import identity, meters, model, ring, state, work
from sglang_fastfill.ledger import LEDGER

logger = logging.getLogger(__name__)

FUNCTIONS = {
    "aiter.flash_attn_varlen_fp8_pertensor_func": "unknown",
    "aiter.flash_attn_varlen_func": "unknown",
    "aiter.mha_batch_prefill_func": "unknown",
    "aiter.ops.triton.attention.unified_attention.unified_attention": "triton",
}
"""What SGLang calls, and the kernel label when no dispatch point was seen beneath it."""

DISPATCH_POINTS = {
    "aiter.fmha_v3_varlen_fwd": "asm",
    "aiter.mha_varlen_fwd": "ck",
    "aiter.mha_batch_prefill": "ck",
}
"""Where aiter hands over to a kernel. Docs: aiter/ops/mha.py at c16d44b93a, ``_flash_attn_varlen_forward``."""

OF_DECODE = frozenset({"TARGET_VERIFY", "DRAFT_EXTEND", "DRAFT_EXTEND_V2"})
"""Forward modes that are steps of speculative decoding."""

RUNNER = "sglang.srt.model_executor.model_runner.ModelRunner.forward"
TARGETS = (*FUNCTIONS, *DISPATCH_POINTS, RUNNER)

_MARK = "fastfill"


def _mark(hook: Callable[..., Any], target: str) -> Callable[..., Any]:
    hook.__dict__[_MARK] = target
    return hook


def around_function(target: str, default_kernel: str) -> Callable[..., Any]:
    """A hook that counts calls of a function by the kernel they reached."""
    name = target.rpartition(".")[2]

    def hook(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if not LEDGER.open:
            return original(*args, **kwargs)
        LEDGER.kernel = None
        result = original(*args, **kwargs)
        query = args[0] if args else kwargs.get("q")
        LEDGER.call(name, LEDGER.kernel or default_kernel, 0 if query is None else query.size(-1))
        return result

    return _mark(hook, target)


def around_dispatch(target: str, kernel: str) -> Callable[..., Any]:
    """A hook that notes which kernel a call reached."""

    def hook(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        LEDGER.kernel = kernel
        return original(*args, **kwargs)

    return _mark(hook, target)


def attached(target: str) -> bool:
    """Whether our hook is on the target now, found by looking at it: SGLang only logs a hook that failed."""
    path, _, name = target.rpartition(".")
    owner: Any = None
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        try:
            owner = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        for part in parts[length:]:
            owner = getattr(owner, part, None)
        break
    function = getattr(owner, name, None)
    while function is not None:
        for cell in getattr(function, "__closure__", None) or ():
            if _marked(cell) == target:
                return True
        function = getattr(function, "__wrapped__", None)
    return False


def _marked(cell: Any) -> Any:
    try:
        return getattr(cell.cell_contents, "__dict__", {}).get(_MARK)
    except ValueError:  # a cell that holds nothing yet
        return None


def missing_from_aiter(target: str) -> bool:
    """Whether this aiter has no such function at all, so that no call could go unseen."""
    module, _, name = target.rpartition(".")
    try:
        return not hasattr(importlib.import_module(module), name)
    except ImportError:
        return True


def hooks() -> dict[str, bool]:
    """Each target that exists, and whether our hook is on it."""
    return {target: attached(target) for target in TARGETS if target == RUNNER or not missing_from_aiter(target)}


class Witness:
    """One rank's memory of its passes."""

    def __init__(self, runner: Any) -> None:
        self.rank = identity.rank(runner)
        self.number = 0
        self.since = time.time()
        self.place = state.folder()
        self.ring = ring.Ring(self.place, self.rank) if self.place else None
        self.meters = meters.build(self.rank)
        self.hooks = hooks()
        self.patched = identity.patched()
        self._models: dict[bool, dict[str, Any]] = {}
        self._published = False
        if self.meters is not None:
            self.meters.identity(identity.version(), identity.sglang_version(), self.patched, self.hooks)

    def observe(self, runner: Any, forward_batch: Any, call: Callable[[], Any]) -> Any:
        """Run one forward pass and record what it did.

        What goes wrong with the record goes to the log and never to the request: a full disk is no reason not to serve.
        """
        LEDGER.begin()
        try:
            result = call()
        finally:
            calls, reasons = LEDGER.end()
        with _recording("pass"):
            self._record(runner, forward_batch, dict(calls), dict(reasons))
        return result

    def _record(self, runner: Any, forward_batch: Any, calls: dict[Any, int], reasons: dict[str, int]) -> None:
        draft = bool(runner.is_draft_worker)
        if draft not in self._models:
            self._models[draft] = model.describe(runner.model_config, draft)
            self._published = False
        backend = type(identity.prefill_backend(runner.attn_backend)).__name__
        if not calls and not reasons:
            # No aiter function was called at all: another backend computed this pass.
            calls = {("none", "unknown", self._models[draft]["head_dim"]): self._models[draft]["attention_layers"]}
        if not reasons and backend != "AiterAttnBackend":
            reasons = {"backend_not_aiter": sum(calls.values())}
        prefixes = list(forward_batch.extend_prefix_lens_cpu or [])
        extends = list(forward_batch.extend_seq_lens_cpu or [])
        prefixes = prefixes or [0] * len(extends)
        self.number += 1
        if self.meters is not None:
            with _recording("metrics"):
                self.meters.add(
                    calls,
                    reasons,
                    work.shares(calls, reasons, "unpatched"),
                    draft=draft,
                    prefix=any(prefixes),
                    tokens=sum(extends),
                    work=work.attention_work(prefixes, extends),
                    saturated=_saturated(),
                )
        if not self._published and self.place is not None:
            with _recording("status"):
                state.write_status(self.place, self.rank, self._status(runner, backend))
                self._published = True
        if self.ring is not None:
            # Last, so that whoever finds the pass finds the rest as well.
            self.ring.append(
                {
                    "pass": self.number,
                    "pid": os.getpid(),
                    "time": round(time.time(), 6),
                    "mode": forward_batch.forward_mode.name,
                    "draft": draft,
                    "rids": list(getattr(forward_batch, "rids", None) or []),
                    "prefix": prefixes,
                    "extend": extends,
                    "calls": [
                        {"fn": fn, "kernel": kernel, "head_dim": dim, "count": n}
                        for (fn, kernel, dim), n in calls.items()
                    ],
                    "reasons": reasons,
                }
            )

    def _status(self, runner: Any, backend: str) -> dict[str, Any]:
        from sglang_fastfill import deployment, kernel_files

        aiter_backend = importlib.import_module("sglang.srt.layers.attention.aiter_backend")
        return {
            "rank": self.rank,
            "pid": os.getpid(),
            "sglang": identity.sglang_version(),
            "patched": self.patched,
            "build": identity.version(),
            "flag": deployment.flag_on(),
            "near_miss": deployment.near_misses(),
            "rival": deployment.rival(aiter_backend),
            "backend": backend,
            "hooks": self.hooks,
            "deployment": identity.deployment_findings(backend),
            # Expected calls are counted from the target model; the draft's passes are marked and left out.
            "model": self._models.get(False) or self._models[True],
            "draft_model": self._models.get(True),
            "forced_fallback_allowed": state.truthy(os.environ.get(state.ALLOW_FORCED_FALLBACK)),
            "metrics": self.meters is not None,
            "kernel_files": kernel_files.installed_sha256(),
            "context_len": int(runner.model_config.context_len),
            # What a reader of the server's log must know: since when, and whether aiter says what it loads.
            "since": self.since,
            "aiter_log_level": os.environ.get("AITER_LOG_LEVEL", ""),
        }


def _saturated() -> int:
    """Saturated elements up to the pass before this one, without waiting for the device."""
    from sglang_fastfill import passes

    return sum(memory.saturated_so_far() for memory in passes.MEMORIES)


_complained: set[str] = set()


@contextlib.contextmanager
def _recording(what: str) -> Iterator[None]:
    """Keep the witness's failures out of the forward pass; each kind is logged once.

    It shows from outside all the same: what was not recorded makes ``prove`` say INVALID.
    """
    try:
        yield
    except Exception as error:
        kind = f"{what} {type(error).__name__}"
        if kind not in _complained:
            _complained.add(kind)
            logger.exception("fastfill: the witness cannot record this %s, and says so once; serving goes on", what)


_witness: Witness | None = None
_unfit = False


def around_forward(original: Callable[..., Any], runner: Any, forward_batch: Any, *args: Any, **kwargs: Any) -> Any:
    """The hook on ModelRunner.forward: a pass begins and ends here.

    A verify pass of speculative decoding is a decode step: left in, they push every prefill out of the ring in seconds.
    """
    global _witness, _unfit
    mode = forward_batch.forward_mode
    if mode.is_decode_or_idle() or mode.name in OF_DECODE:
        return original(runner, forward_batch, *args, **kwargs)
    if _witness is None and not _unfit:
        _unfit = True
        with _recording("server"):
            _witness = Witness(runner)
            _unfit = False
    if _witness is None:
        return original(runner, forward_batch, *args, **kwargs)
    return _witness.observe(runner, forward_batch, lambda: original(runner, forward_batch, *args, **kwargs))


_mark(around_forward, RUNNER)
