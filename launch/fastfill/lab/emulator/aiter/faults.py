"""The known faults of aiter releases, reproduced on request: ``AITER_EMULATOR_FAULT=name[,name…]``.

Two properties need no request, because every release of aiter has them: only element 0 of a descale is read, and a GQA
ratio of 32 or more passes the gate and is answered wrongly.
"""

from __future__ import annotations

import os

FAULTS: dict[str, str] = {
    "no_function": "an aiter without flash_attn_varlen_fp8_pertensor_func (before 2025-09): importing the name fails",
    "no_hd256": "an aiter without the head-dim-256 kernels (up to v0.1.18): no table row, no file, the call fails",
    "revision_b": "kernel revision B (e1369bfa67 up to 2e7856a0f8): files of that revision, rows left unwritten",
    "unwritten_rows": "revision B's unwritten rows under the files of a good revision",
    "noncausal": "the assembly kernel ignores the causal mask",
    "half_scale": "the assembly kernel's answers are halved",
    "nan": "the assembly kernel answers NaN",
    "raises": "the assembly kernel raises aiter's own error text",
    "first_layer_only": "a modifier: wrong answers come from the first of AITER_EMULATOR_LAYERS layers only",
}


def active() -> frozenset[str]:
    """The faults asked for.

    Raises:
        ValueError: A name is unknown; a typing error must not look like a sound kernel.
    """
    asked = frozenset(name.strip() for name in os.environ.get("AITER_EMULATOR_FAULT", "").split(",") if name.strip())
    unknown = sorted(asked - FAULTS.keys())
    if unknown:
        raise ValueError(f"AITER_EMULATOR_FAULT: unknown {', '.join(unknown)}; known are {', '.join(FAULTS)}")
    return asked


def has(name: str) -> bool:
    """Whether this fault was asked for."""
    return name in active()


class AnswerFaults:
    """Which faults of the answers apply to the next call of the assembly kernel."""

    names = frozenset({"revision_b", "unwritten_rows", "noncausal", "half_scale", "nan", "raises"})

    def __init__(self) -> None:
        self._calls = 0

    def for_next_call(self) -> frozenset[str]:
        """The faults of this call; it counts calls to know the layer."""
        layer = self._calls % max(1, int(os.environ.get("AITER_EMULATOR_LAYERS", "2")))
        self._calls += 1
        faults = active()
        if "first_layer_only" in faults and layer:
            return frozenset()
        return faults & self.names
