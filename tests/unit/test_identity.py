"""What a rank says of itself, on the releases that keep it in different places."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from sglang_fastfill import identity

PLAIN = SimpleNamespace(pp_rank=0, tp_rank=3, dp_rank=None, attn_dp_rank=0, attn_dp_size=1)


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        (PLAIN, {"pp": 0, "dp": 0, "tp": 3}),
        (SimpleNamespace(**{**vars(PLAIN), "dp_rank": 2}), {"pp": 0, "dp": 2, "tp": 3}),
        (SimpleNamespace(**{**vars(PLAIN), "attn_dp_rank": 1, "attn_dp_size": 2}), {"pp": 0, "dp": 1, "tp": 3}),
    ],
)
def test_ranks_are_found_where_the_release_keeps_them(
    ranks: SimpleNamespace, expected: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to 0.5.20 the model runner has them; from 0.5.22 the process's runtime context."""
    assert identity.rank(SimpleNamespace(ps=ranks)) == expected
    context = ModuleType("sglang.srt.runtime_context")
    context.get_parallel = lambda: ranks  # type: ignore[attr-defined]
    for name in ("sglang", "sglang.srt"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "sglang.srt.runtime_context", context)
    assert identity.rank(SimpleNamespace()) == expected
