"""What an observer of the emulated aiter sees: the kernel in a trace by its name."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import aiter
import torch
from emulated import batch

SYMBOL = "_ZN5aiter38fmha_fwd_hd256_fp8_causal_group_gfx950E"


def test_a_trace_shows_the_assembly_kernel_as_a_gpus_does(tmp_path: Path) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in range(3):
            aiter.flash_attn_varlen_fp8_pertensor_func(**batch([9, 1, 30], 4, 2, 256))
        with torch.profiler.record_function("somebody else's"):
            pass
    file = tmp_path / "a-TP-0.trace.json.gz"
    profile.export_chrome_trace(str(file))
    with gzip.open(file, "rt") as text:
        events = json.load(text)["traceEvents"]
    kernels = [one for one in events if one.get("cat") == "kernel"]
    assert [(one["name"], one["args"]["emulated"]) for one in kernels] == [(SYMBOL, True)] * 3
    assert [one["cat"] for one in events if one.get("name") == "somebody else's"] == ["user_annotation"]
