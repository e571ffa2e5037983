"""Builds the parts of an aiter installation that decide the fast path, as a checkout or as an installed wheel."""

from __future__ import annotations

from pathlib import Path

import amdgpu_elf

from fastfill.kernels.revisions import CAUSAL_GROUP, SYMBOLS

HEADER = "dtype,hdim_q,hdim_v,mask,mode,bf16_cvt,ts_qo,ts_kv,knl_name,co_name\n"
HD128 = (
    "fp8bf16,128,128,2,1,0,256,128,_ZN5aiter37fmha_fwd_hd128_fp8_causal_group_gfx950E,fwd_hd128_fp8_causal_group.co\n"
)
HD256 = f"fp8bf16,256,256,2,1,0,256,64,{SYMBOLS[CAUSAL_GROUP]},{CAUSAL_GROUP}\n"
GATE = """
def _flash_attn_varlen_forward(q, k, v):
    hdim_q, hdim_v = q.shape[-1], v.shape[-1]

    def is_fmha_v3_fp8():
        return (hdim_q == 128 and hdim_v == 128) or ({branch})
"""
NEW_GATE = GATE.format(branch="hdim_q == 256 and hdim_v == 256")
OLD_GATE = GATE.format(branch="hdim_q == 192 and hdim_v == 128")
DENSE_ONLY_GATE = "def _flash_attn_forward(q):\n    return q.shape[-1] == 256\n" + OLD_GATE
MODULE = (
    b"\x7fELF" + b"\x00" * 60 + b"__CLANG_OFFLOAD_BUNDLE__hipv4-amdgcn-amd-amdhsa--gfx950\x00" + CAUSAL_GROUP.encode()
)


def make(
    root: Path,
    *,
    wheel: bool = False,
    objects: dict[str, bytes] | None = None,
    table: str | None = HEADER + HD128 + HD256,
    gate: str | None = NEW_GATE,
    module: bytes | None = MODULE,
) -> Path:
    """An installation with all four objects unless told otherwise; None leaves a part out."""
    data = root / "aiter_meta" if wheel else root
    folder = data / "hsa/gfx950/fmha_v3_fwd"
    folder.mkdir(parents=True)
    for name, content in (whole() if objects is None else objects).items():
        (folder / name).write_bytes(content)
    if table is not None:
        (folder / "fmha_fwd.csv").write_text(table)
    (root / "aiter/ops").mkdir(parents=True)
    (root / "aiter/jit").mkdir()
    if gate is not None:
        (root / "aiter/ops/mha.py").write_text(gate)
    if module is not None:
        (root / "aiter/jit/module_fmha_v3_varlen_fwd.so").write_bytes(module)
    return root


def whole() -> dict[str, bytes]:
    """All four objects."""
    return {name: amdgpu_elf.build(symbol) for name, symbol in SYMBOLS.items()}
