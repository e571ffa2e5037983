"""What is decided once per forward pass, and kept on the ForwardBatch for its layers."""

from __future__ import annotations

from typing import Any

import torch

from sglang_fastfill import context, gate
from sglang_fastfill.memory import Memory

MEMORIES: list[Memory] = []
"""One per attention backend, for the witness to read the saturation counts."""


class Pass:
    """What was decided for one forward pass.

    Attributes:
        backend: The AiterAttnBackend that it was decided for (target and draft have their own).
        mode: The ForwardBatch's forward mode then.
        prefixes: Its list of prefix lengths then: SGLang gives a batch that it uses again new lists.
        facts: What the verdict rests on.
        verdict: The gate's.
        context: Where the whole sequences lie in the KV pool, for a batch with a prefix that can be brought to the
            kernel; None otherwise.
        final: Whether a layer that may fire has been seen, the only kind whose KV buffer tells the context.
    """

    __slots__ = ("backend", "context", "facts", "final", "mode", "prefixes", "verdict")

    def __init__(self, backend: Any, forward_batch: Any, facts: gate.PassFacts) -> None:
        self.backend = backend
        self.mode = forward_batch.forward_mode
        self.prefixes = forward_batch.extend_prefix_lens_cpu
        self.facts = facts
        self.verdict = gate.judge_pass(facts)
        self.context: context.Context | None = None
        self.final = not facts.prefix_lens or not any(facts.prefix_lens)

    def finish(self, forward_batch: Any, layer: Any) -> None:
        """Look for the context, at the first layer that may fire."""
        self.final = True
        if self.facts.mode not in ("EXTEND", "MIXED") or self.facts.operator_off:
            return
        self.context = context.find(self.backend, forward_batch, layer)
        if self.context is not None:
            self.verdict = gate.with_prefix_reached(self.verdict)


def _memory(backend: Any) -> Memory:
    memory = Memory(backend.device)
    backend.fastfill_memory = memory
    MEMORIES.append(memory)
    return memory


def _capturing() -> bool:
    return bool(torch.cuda.is_available() and torch.cuda.is_current_stream_capturing())


def judge(backend: Any, forward_batch: Any) -> Pass:
    """Decide a forward pass, remember where its prompts end, and leave the decision on the batch."""
    memory: Memory = getattr(backend, "fastfill_memory", None) or _memory(backend)
    prefixes = forward_batch.extend_prefix_lens_cpu
    extends = forward_batch.extend_seq_lens_cpu or []
    rids = getattr(forward_batch, "rids", None) or []
    facts = gate.PassFacts(
        operator_off=memory.switch.is_off(),
        capturing=_capturing(),
        mode=forward_batch.forward_mode.name,
        prefix_lens=prefixes,
        extend_lens=extends,
        rids=rids,
        ends=memory.ends,
        forced_fallback_allowed=memory.allow_forced,
    )
    forward_pass = Pass(backend, forward_batch, facts)
    if prefixes is not None:
        memory.remember(rids, prefixes, extends)
    forward_batch.fastfill_pass = forward_pass
    return forward_pass
