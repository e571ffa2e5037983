"""Advice that holds for one SGLang and not for another is given for the one that is there."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_run import fastfill
from evidence_maker import evidence

from fastfill.proof.notes import notes
from fastfill.proof.wire import ServerFacts

NOT_NEEDED = "neither --disable-radix-cache nor --chunked-prefill-size -1 is needed"
MODEL = Path(__file__).resolve().parents[1] / "data" / "configs" / "qwen3.5-397b-a17b.json"


@pytest.mark.parametrize(
    ("release", "chunk", "no_radix", "leaves", "not_needed"),
    [
        ("0.5.16", 512, False, True, False),
        ("0.5.16", -1, True, False, False),
        ("0.5.18", 512, True, True, False),
        ("0.5.19", 512, False, False, False),
        ("0.5.19", -1, False, False, True),
        ("0.5.23", 512, True, False, True),
    ],
)
def test_prove(release: str, chunk: int, no_radix: bool, leaves: bool, not_needed: bool) -> None:
    facts = ServerFacts(version=release, tp_size=1, chunked_prefill_size=chunk, disable_radix_cache=no_radix)
    said = "\n".join(notes(evidence(server=facts)))
    assert ("leaves the path before" in said, NOT_NEEDED in said) == (leaves, not_needed)


@pytest.mark.parametrize(("stack", "expected"), [("sglang-0.5.16", False), ("sglang-0.5.23", True)])
def test_plan(stack: str, expected: bool) -> None:
    words = ("--workload", "isl=2000,osl=10,conc=2,requests=8", "--model", str(MODEL), "--tp", "4", "--stack", stack)
    ran = fastfill("plan", *words)
    assert ran.code == 0, ran.err
    assert (NOT_NEEDED in ran.out) == expected
