"""Where aiter keeps its kernel files, and the build switch that reroutes its attention functions."""

from __future__ import annotations

import os
from pathlib import Path

from .. import faults
from .utils.chip_info import get_gfx

ENABLE_CK = int(os.environ.get("ENABLE_CK", "1")) != 0

# A wheel keeps the package's csrc and hsa folders in a neighbour, aiter_meta.
AITER_ROOT_DIR = str(Path(__file__).resolve().parents[2])


def _meta_dir() -> str:
    asked = os.environ.get("AITER_META_DIR")
    if asked and (Path(asked).resolve() / "csrc").exists():
        return str(Path(asked).resolve())
    for fault, name in (("no_hd256", "aiter_meta_no_hd256"), ("revision_b", "aiter_meta_revision_b")):
        if faults.has(fault):
            return str(Path(AITER_ROOT_DIR) / name)
    return str(Path(AITER_ROOT_DIR) / "aiter_meta")


AITER_META_DIR = _meta_dir()
AITER_CSRC_DIR = f"{AITER_META_DIR}/csrc"
AITER_ASM_DIR = f"{AITER_META_DIR}/hsa/"
os.environ["AITER_ASM_DIR"] = AITER_ASM_DIR


def get_asm_dir() -> str:
    """The kernel files of the architecture that the dispatch believes in."""
    return str(Path(AITER_ASM_DIR) / get_gfx())
