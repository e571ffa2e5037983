"""Which GPU aiter believes it runs on: gfx950 here, unless GPU_ARCHS says otherwise."""

from __future__ import annotations

import functools
import os

KNOWN = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1101", "gfx1102", "gfx1151", "gfx1200", "gfx1201", "gfx1250")


def _detect_native() -> list[str]:
    return ["gfx950"]


@functools.lru_cache(maxsize=1)
def get_gfx() -> str:
    """The architecture of the dispatch: the last entry of GPU_ARCHS, or the GPU's own for ``native``."""
    asked = os.getenv("GPU_ARCHS", "native")
    name = _detect_native()[0] if asked == "native" else asked.split(";")[-1]
    if name not in KNOWN:
        raise KeyError(f"Unknown GPU architecture: {name}. Supported architectures: {list(KNOWN)}")
    return name


@functools.lru_cache(maxsize=1)
def get_gfx_runtime() -> str:
    """The architecture of the GPU itself; GPU_ARCHS does not matter."""
    return _detect_native()[0]


def get_cu_num() -> int:
    """Compute units: MI355X has 256."""
    return int(os.environ.get("CU_NUM") or 256)
