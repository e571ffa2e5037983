"""What the gate and the witness add to one layer's prefill call, in Python time.

Run inside the lab's environment: ``fastfill lab python bench/gate_overhead.py``. KV write, quantiser and kernels are
replaced by no-ops in the patched and the unpatched backend alike; the two are timed alternately in one process, and the
difference of the least times is printed beside its bound, with the ratio of the two.

With ``--stack sglang-0.5.23`` the unpatched backend has a path of its own: with the flag off it is compared without it
(as on a GPU that lacks the kernel), with the flag on as it is.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "backend"))
SCRATCH = tempfile.TemporaryDirectory(prefix="fastfill-bench-")
os.environ["FASTFILL_STATE_DIR"] = SCRATCH.name

import aiter
import harness
import stamp
import torch

from sglang_fastfill import identity, prefill, witness
from sglang_fastfill.conditions import FLAG
from sglang_fastfill.ledger import LEDGER

VERSION = identity.sglang_version()
MODULES = ("context", "gate", "ledger", "memory", "passes", "prefill", "witness")
SOURCES = (
    "bench/gate_overhead.py",
    *(f"patches/sglang_fastfill/{name}.py" for name in MODULES),
    f"patches/sglang-{VERSION}/fp8-hd256-prefill.patch",
    f"patches/sglang-{VERSION}/fallback-unit-q-descale.patch",
)
BOUNDS = {"flag off": 1.0, "flag on": 5.0, "witness": 4.0}
"""Microseconds a layer call."""


def no_kernel(*_args: Any, **_kwargs: Any) -> torch.Tensor:
    return OUT


OUT = torch.zeros(1, 4 * 256, dtype=torch.bfloat16)


def stub(module: Any) -> None:
    """Take KV write and attention out of a backend module."""
    module.launch_reshape_and_cache_flash = lambda *_a, **_k: None
    module.mha_batch_prefill_func = no_kernel
    for name, nothing in (
        ("flash_attn_varlen_fp8_pertensor_func", no_kernel),
        ("scaled_fp8_quant", lambda q, scale: (q, scale)),
    ):
        if hasattr(module, name):
            setattr(module, name, nothing)


def call(module: Any, batch: int) -> Callable[[], Any]:
    """One ``forward_extend`` of a batch of one-token prompts."""
    engine = harness.Engine(module=module)
    forward_batch = engine.batch(dict.fromkeys(range(1, batch + 1), 1))
    q, k, v = engine.inputs(batch, seed=0)
    q, k, v = (x.to(harness.FP8) for x in (q, k, v))  # a cast is a kernel too: of fp8 it is none
    engine.backend.init_forward_metadata(forward_batch)
    forward = engine.backend.forward_extend
    layer = engine.layer
    return lambda: forward(q, k, v, layer, forward_batch)


def alternate(a: Callable[[], Any], b: Callable[[], Any], repeats: int, inner: int) -> tuple[float, float]:
    """Least microseconds a call of a and b, timed in turns: what else the machine does only ever adds."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        for function, into in zip((a, b), times, strict=True):
            start = time.perf_counter_ns()
            for _ in range(inner):
                function()
            into.append((time.perf_counter_ns() - start) / inner / 1000)
    return min(times[0]), min(times[1])


def measure(batch: int, flag: bool, unpatched: Any, repeats: int, inner: int) -> dict[str, Any]:
    """Added microseconds a layer call at one batch size."""
    os.environ[FLAG] = "1" if flag else "0"
    LEDGER.begin()
    ours, theirs = call(harness.patched_module, batch), call(unpatched, batch)
    with contextlib.nullcontext() if flag else harness.without_builtin(unpatched):
        ours()
        theirs()
        mine, base = alternate(ours, theirs, repeats, inner)
    name = "flag on" if flag else "flag off"
    return {
        "case": name,
        "batch": batch,
        "patched_us": round(mine, 2),
        "unpatched_us": round(base, 2),
        "ratio": round(mine / base, 3),
        "added_us": round(mine - base, 2),
        "bound_us": BOUNDS[name],
    }


def measure_witness(repeats: int, inner: int) -> dict[str, Any]:
    """Added microseconds a call of the two hooks that a layer call passes."""
    from sglang.srt.plugins.hook_registry import HookType, _wrap_fn

    query = torch.zeros(1, 4, 256)
    dispatched = _wrap_fn(lambda q: q, witness.around_dispatch("aiter.fmha_v3_varlen_fwd", "asm"), HookType.AROUND)
    hooked = _wrap_fn(
        dispatched,
        witness.around_function("aiter.flash_attn_varlen_fp8_pertensor_func", "unknown"),
        HookType.AROUND,
    )

    def bare_dispatch(q: torch.Tensor) -> torch.Tensor:
        return q

    def bare(q: torch.Tensor) -> torch.Tensor:
        return bare_dispatch(q)

    LEDGER.begin()
    with_hooks, without = alternate(lambda: hooked(query), lambda: bare(query), repeats, inner)
    return {
        "case": "witness",
        "batch": 1,
        "patched_us": round(with_hooks, 2),
        "unpatched_us": round(without, 2),
        "ratio": round(with_hooks / without, 3),
        "added_us": round(with_hooks - without, 2),
        "bound_us": BOUNDS["witness"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 64, 256])
    parser.add_argument("--repeats", type=int, default=41)
    parser.add_argument("--inner", type=int, default=200)
    parser.add_argument("--out", type=Path, help="write the result file here")
    arguments = parser.parse_args()
    unpatched = harness.load_unpatched(Path(SCRATCH.name))
    for module in (harness.patched_module, unpatched):
        stub(module)
    aiter.flash_attn_varlen_fp8_pertensor_func = no_kernel
    prefill._saturated = lambda _memory, x, _scale: x
    prefill.quantize_qkv = lambda q, k, v, *_a: (q, k, v)
    rows = []
    for batch in arguments.batch:
        for flag in (False, True):
            rows.append(measure(batch, flag, unpatched, arguments.repeats, arguments.inner))
    rows.append(measure_witness(arguments.repeats, arguments.inner))
    print(f"{'case':10} {'batch':>5} {'patched':>9} {'unpatched':>9} {'ratio':>6} {'added':>7} {'bound':>6}")
    for row in rows:
        print(
            f"{row['case']:10} {row['batch']:5} {row['patched_us']:9.2f} {row['unpatched_us']:9.2f} "
            f"{row['ratio']:6.3f} {row['added_us']:7.2f} {row['bound_us']:6.1f}"
        )
    if arguments.out:
        stamp.write(
            arguments.out,
            "fastfill.gate_overhead/1",
            "make prove-all",
            list(SOURCES),
            sglang=VERSION,
            torch=torch.__version__,
            python=platform.python_version(),
            rows=rows,
        )


if __name__ == "__main__":
    main()
