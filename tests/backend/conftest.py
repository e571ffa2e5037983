"""Fixtures for tests that run inside the lab's environment: real SGLang, emulated aiter."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def state_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder of the test's own, with the flag on and the forced fallback allowed."""
    monkeypatch.setenv("FASTFILL_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("FASTFILL_ALLOW_FORCED_FALLBACK", "1")
    monkeypatch.setenv("SGLANG_AITER_FMHA_FP8_ASM", "1")
    return tmp_path


@pytest.fixture(autouse=True)
def ledger() -> Iterator[Any]:
    """The open pass's counts, as the witness would open them."""
    from sglang_fastfill.ledger import LEDGER

    LEDGER.begin()
    yield LEDGER
    LEDGER.end()


@pytest.fixture(scope="session")
def unpatched(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """SGLang's own aiter_backend module, beside the patched one."""
    from harness import load_unpatched

    return load_unpatched(tmp_path_factory.mktemp("unpatched"))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the aiter functions that SGLang or fastfill calls, in order."""
    import aiter
    from sglang.srt.layers.attention import aiter_backend, aiter_utils

    names: list[str] = []

    def record(name: str, function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            names.append(name)
            return function(*args, **kwargs)

        return call

    import sys

    modules = [aiter, aiter_backend, aiter_utils]
    modules += [sys.modules[n] for n in list(sys.modules) if n.endswith("_unpatched")]
    for name in ("flash_attn_varlen_fp8_pertensor_func", "mha_batch_prefill_func", "unified_attention"):
        for module in modules:
            if hasattr(module, name):
                monkeypatch.setattr(module, name, record(name, getattr(module, name)))
    return names
