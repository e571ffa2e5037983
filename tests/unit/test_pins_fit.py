"""The check that two source trees fit: on trees made for one rule each, and the result that is kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fastfill.pinning import fit, fitting
from fastfill.pinning import stack as stacks

AITER = {
    "aiter/__init__.py": "from .ops.norm import *\nfrom aiter.ops.enum import Kind\nfrom . import jit\n",
    "aiter/ops/__init__.py": "",
    "aiter/ops/norm.py": "def rms(x, weight, eps=1e-6, *, out=None): ...\n_hidden = 1\n",
    "aiter/ops/enum.py": "class Kind:\n    def __init__(self, a): ...\n    ONE = 1\n",
    "aiter/ops/triton/__init__.py": '_BACKWARD_COMPAT_MAP = {"old": "new.place"}\n',
    "aiter/ops/triton/new/place.py": "def gemm(a, b): ...\n",
    "aiter/jit/__init__.py": "",
    "aiter/jit/core.py": "try:\n    from os import getcwd as where\nexcept ImportError:\n    where = None\n",
}


def judge(tmp_path: Path, source: str) -> dict[str, fit.Name]:
    files = {**AITER, "sglang/__init__.py": "", "sglang/use.py": source}
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return {entry.name: entry for entry in fit.check(tmp_path, tmp_path)}


@pytest.mark.parametrize(
    ("source", "name", "status", "detail"),
    [
        ("from aiter import rms\nrms(1, 2, out=3)", "aiter.rms", "fits", ""),
        ("import aiter\naiter.rms(1, weight=2)", "aiter.rms", "fits", ""),
        ("from aiter.ops.triton.old import gemm\ngemm(1, 2)", "aiter.ops.triton.old.gemm", "fits", ""),
        ("from aiter.jit.core import where", "aiter.jit.core.where", "fits", ""),
        ("from aiter import rms\nrms(*a)", "aiter.rms", "fits", ""),
        ("from aiter import gone", "aiter.gone", "missing", "not defined there"),
        ("from aiter import _hidden", "aiter._hidden", "missing", "not defined there"),
        ("import aiter\nx = aiter.gone", "aiter.gone", "missing", "not defined there"),
        (
            "try:\n    from aiter import gone\nexcept ImportError:\n    gone = None",
            "aiter.gone",
            "optional_missing",
            "",
        ),
        ("from aiter import rms\nrms(1)", "aiter.rms", "misfit", "weight not given"),
        ("from aiter import rms\nrms(1, 2, 3, 4)", "aiter.rms", "misfit", "4 positional arguments, it takes 3"),
        ("from aiter import rms\nrms(1, 2, epsilon=3)", "aiter.rms", "misfit", "no parameter epsilon"),
        ("from aiter import rms\nrms(1, 2, x=3)", "aiter.rms", "misfit", "x given twice"),
        ("from aiter import Kind\nKind()", "aiter.Kind", "misfit", "a not given"),
    ],
)
def test_one_use(tmp_path: Path, source: str, name: str, status: str, detail: str) -> None:
    found = judge(tmp_path, source)[name]
    assert (found.status, detail in found.detail) == (status, True)


def test_a_name_that_other_code_binds_too_is_not_judged_by_its_calls(tmp_path: Path) -> None:
    source = "if hip:\n    from aiter import rms\nelse:\n    from other import rms\nrms(1, 2, fused=True)"
    assert judge(tmp_path, source)["aiter.rms"].status == "fits"


def test_members_of_a_class_are_not_looked_into(tmp_path: Path) -> None:
    assert set(judge(tmp_path, "from aiter import Kind\nx = Kind.TWO.value")) == {"aiter.Kind"}


@pytest.mark.parametrize("name", stacks.available())
def test_the_kept_result_is_of_the_pinned_commits_and_finds_only_what_the_stack_lists(name: str) -> None:
    kept = fit.FitDocument.model_validate(json.loads(fitting.path_of(name).read_text()))
    stack = stacks.load(name)
    assert (kept.stack, kept.sglang, kept.aiter) == (stack.name, stack.sglang.version, stack.aiter.commit)
    assert {entry.name for entry in fit.problems(kept.names)} == set(stack.misfits)
    assert fitting.problems(kept) == []
    names = {entry.name: entry for entry in kept.names}
    assert names["aiter.fused_moe.fused_moe"].status == "fits"
    assert names["aiter.mha_batch_prefill_func"].calls > 0
