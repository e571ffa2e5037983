"""`fastfill selfcheck`: right on the right kernel, and each faulty one is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
import torch

from sglang_fastfill import selfcheck


def run(fault: str = "", **variables: str) -> tuple[int, dict[str, Any]]:
    env = {**os.environ, "AITER_EMULATOR_FAULT": fault, **variables}
    argv = [sys.executable, "-m", "fastfill", "selfcheck", "--json"]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=120, check=False)
    start = done.stdout.index("{\n")
    return done.returncode, json.loads(done.stdout[start:])


@pytest.mark.parametrize("weights_in_fp8", ["0", "1"])
def test_the_right_kernel_passes(weights_in_fp8: str) -> None:
    code, document = run(AITER_EMULATOR_P_FP8=weights_in_fp8)
    assert (code, document["ok"], document["kinds"]) == (0, True, [])
    assert document["seconds"] < 60
    assert len(document["cases"]) >= 18


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("revision_b", "rows unwritten"),
        ("unwritten_rows", "rows unwritten"),
        ("noncausal", "not causal"),
        ("half_scale", "wrong by a scale"),
        ("nan", "not finite"),
        ("raises", "raises"),
        ("no_hd256", "raises"),
        ("no_function", "raises"),
    ],
)
def test_a_faulty_kernel_is_named(fault: str, kind: str) -> None:
    code, document = run(fault)
    assert (code, document["ok"]) == (1, False)
    assert kind in document["kinds"]


def test_revision_b_is_found_by_a_single_long_sequence_alone() -> None:
    """Batches of many similar sequences look right: facts of the disassembled kernel."""
    _, document = run("revision_b")
    failed = {case["name"] for case in document["cases"] if not case["ok"]}
    assert "one sequence of 512" in failed
    assert "length 1" not in failed


def case(name: str) -> selfcheck.Case:
    return next(c for c in selfcheck.CASES if c.name == name)


def test_a_ratio_that_the_kernel_gets_wrong_is_found() -> None:
    """The emulator answers ratio 32 as aiter does, wrongly; the cases stop at 16, which is right."""
    import aiter

    wrong = selfcheck.run_case(selfcheck.Case("head ratio 32", (300,), q_heads=64, kv_heads=2), aiter, "cpu")
    assert not wrong.ok
    assert selfcheck.run_case(case("head ratio 16"), aiter, "cpu").ok


def test_the_reference_is_torch_attention() -> None:
    q, k, v = (torch.randn(50, heads, 256) for heads in (4, 2, 2))
    want = torch.nn.functional.scaled_dot_product_attention(
        *(x.transpose(0, 1)[None] for x in (q, k, v)), is_causal=True, enable_gqa=True
    )[0].transpose(0, 1)
    assert torch.allclose(selfcheck.reference(q, k, v, (50,)), want, atol=1e-5)
