"""Looks for the hd256 fp8 kernel in the installed aiter.

Importing ``flash_attn_varlen_fp8_pertensor_func`` proves nothing: the function exists since 2025-09, the kernel files
since ROCm/aiter#3732 (2026-07-23).
"""

from __future__ import annotations

import csv
import hashlib
import importlib
from functools import lru_cache
from pathlib import Path

from sglang_fastfill.gate import KernelState

FUNCTION = "flash_attn_varlen_fp8_pertensor_func"
KERNEL_FILE = "fwd_hd256_fp8_causal_group.co"
KERNEL_TABLE = "fmha_fwd.csv"

BROKEN_SHA256 = frozenset(
    {
        # aiter e1369bfa67 (#4657): causal kernels without diagonal pairing leave rows unwritten.
        "a916b4c5f5b920171d69fe240b06c29ed430b053c4233b7c593f53be7d4aab35",
        "95ef992a211ffeb2ae3dc9afa7ca87a9dcc59f85a9423d67e2e22b62d153eaba",
    }
)


def folder_state(folder: Path) -> KernelState:
    """State of the kernel in one ``hsa/gfx950/fmha_v3_fwd`` folder, which holds the kernel objects and their table."""
    try:
        with (folder / KERNEL_TABLE).open(newline="", encoding="utf-8", errors="replace") as file:
            listed = any(row.get("co_name") == KERNEL_FILE for row in csv.DictReader(file))
        digest = hashlib.sha256((folder / KERNEL_FILE).read_bytes()).hexdigest()
    except (OSError, csv.Error):
        return "missing"
    if not listed:
        return "missing"
    return "broken" if digest in BROKEN_SHA256 else "present"


@lru_cache(maxsize=1)
def installed_state() -> KernelState:
    """State of the kernel in the aiter that this process imports, read once."""
    place = _folder()
    return "missing" if place is None else folder_state(place)


def installed_sha256() -> dict[str, str]:
    """SHA-256 of each head-dim-256 kernel file of that aiter, by file name; empty where it has none."""
    place = _folder()
    files = sorted(place.glob("fwd_hd256_fp8*.co")) if place is not None else []
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def _folder() -> Path | None:
    """The folder of its prefill kernels, None for an aiter without the function."""
    try:
        aiter = importlib.import_module("aiter")
        core = importlib.import_module("aiter.jit.core")
    except ImportError:
        return None
    place = getattr(core, "AITER_META_DIR", None)
    if place is None or not hasattr(aiter, FUNCTION):
        return None
    return Path(place) / "hsa" / "gfx950" / "fmha_v3_fwd"
