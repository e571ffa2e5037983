"""Under torch.compile the gate decides each pass as it does without: nothing of a decision is frozen into a graph."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from harness import GATHERS, Engine

from sglang_fastfill import state

FAST = "flash_attn_varlen_fp8_pertensor_func"
PAGED = "mha_batch_prefill_func"


@pytest.fixture
def compiled() -> Iterator[Any]:
    """Dynamo as it is in a server that was started with --enable-torch-compile; the lab switches it off."""
    import torch._dynamo

    before = torch._dynamo.config.disable
    torch._dynamo.config.disable = False
    torch._dynamo.reset()
    yield lambda engine: torch.compile(engine.backend.forward_extend, backend="eager", dynamic=True)
    torch._dynamo.reset()
    torch._dynamo.config.disable = before


def run(engine: Engine, forward: Any, requests: dict[int, int], seed: int) -> torch.Tensor:
    forward_batch = engine.batch(requests)
    tokens = sum(requests.values())
    q, k, v = engine.inputs(tokens, seed)
    engine.backend.init_forward_metadata(forward_batch)
    at = 0
    for index, count in requests.items():
        old = engine.kept.get(index)
        piece = (k[at : at + count], v[at : at + count])
        engine.kept[index] = piece if old is None else tuple(torch.cat(pair) for pair in zip(old, piece, strict=True))
        at += count
    return forward(q.reshape(tokens, -1), k.clone(), v.clone(), engine.layer, forward_batch)


def test_decisions_and_outputs_are_those_of_eager_execution(
    compiled: Any, calls: list[str], ledger: Any, state_dir: Path
) -> None:
    outputs = []
    for make in (lambda engine: engine.backend.forward_extend, compiled):
        engine = Engine()
        forward = make(engine)
        one = run(engine, forward, {1: 40}, 1)
        two = run(engine, forward, {1: 24}, 2)
        state.write_path(state_dir, "off", "test", "")
        three = run(engine, forward, {2: 33}, 3)
        state.write_path(state_dir, "on", "test", "")
        four = run(engine, forward, {3: 20, 4: 9}, 4)
        outputs.append((one, two, three, four))
    later = FAST if GATHERS else PAGED
    assert calls == [FAST, later, PAGED, FAST] * 2
    assert ledger.reasons == ({"operator_off": 2} if GATHERS else {"operator_off": 2, "prefix_chunk": 2})
    for eager, graph in zip(*outputs, strict=True):
        assert torch.equal(eager, graph)


def test_it_is_really_compiled(compiled: Any) -> None:
    """Dynamo sees the call: the test above would pass for a function that it skips."""
    import torch._dynamo.utils

    torch._dynamo.utils.counters.clear()
    engine = Engine()
    run(engine, compiled(engine), {1: 40}, 1)
    assert sum(torch._dynamo.utils.counters["frames"].values()) > 0
