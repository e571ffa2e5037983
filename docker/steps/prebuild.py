"""Compiles aiter's modules for gfx950, with no GPU present, and fails unless every expected one is there.

    prebuild.py AITER BASE_MODULES

A module that is missing is compiled at the first request: up to ten minutes, against a watchdog of five
(ROCm/aiter#5605, sgl-project/sglang#34586). Replacing the base image's aiter discards its modules, so what the base had
is built again, as the base built it (setup.py with PREBUILD_KERNELS=1); then the fallback of the fast path, which no
prebuild includes. BASE_MODULES lists the names that the base had, one a line.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ARCH = "gfx950"
PATH_MODULES = ("module_aiter_core", "module_fmha_v3_varlen_fwd", "module_fmha_v3_fwd")
# What SGLang's fp8 prefill falls back to: paged, causal, per-tensor scales (aiter/ops/mha.py names modules so).
FALLBACK = "mha_batch_prefill_fp8bf16_nlogits_nbias_mask_nlse_ndropout_pertensor_nsink"
FALLBACK_BASE = "module_mha_batch_prefill"
FALLBACK_FILTER = "*fp8bf16*_nlogits*_nbias*_mask*_nlse*_ndropout*_pertensor*_nsink*"


def clean(aiter: Path) -> None:
    """Nothing here notices that a module is older than its source, and a lock of another host is never broken."""
    for stale in [*(aiter / "aiter/jit").glob("*.so"), *(aiter / "aiter/jit/build").glob("lock_*")]:
        stale.unlink()
    subprocess.run(["rm", "-rf", str(aiter / "aiter/jit/build"), str(Path.home() / ".aiter")], check=True)


def build_all(aiter: Path) -> None:
    """What the base image included."""
    environment = {**os.environ, "PREBUILD_KERNELS": "1"}
    subprocess.run([sys.executable, "setup.py", "build_ext", "--inplace"], cwd=aiter, env=environment, check=True)


def build_fallback(core: Any) -> None:
    """One module that is made on demand, with the arguments of its demand."""
    args = core.get_args_of_build(FALLBACK_BASE)
    generate = f"{core.CK_DIR}/example/ck_tile/01_fmha/generate.py -d batch_prefill --receipt 200"
    core.build_module(
        md_name=FALLBACK,
        srcs=args["srcs"],
        flags_extra_cc=args["flags_extra_cc"],
        flags_extra_hip=args["flags_extra_hip"],
        blob_gen_cmd=[f"{generate} --filter {FALLBACK_FILTER} --output_dir {{}}"],
        extra_include=args["extra_include"],
        extra_ldflags=args["extra_ldflags"],
        verbose=args["verbose"],
        is_python_module=args["is_python_module"],
        is_standalone=args["is_standalone"],
        torch_exclude=args["torch_exclude"],
        third_party=args.get("third_party", []),
    )


def main() -> None:
    """Clean, build, check."""
    aiter = Path(sys.argv[1])
    had = Path(sys.argv[2]).read_text(encoding="utf-8").split()
    clean(aiter)
    build_all(aiter)
    # Importing aiter itself asks rocminfo for a GPU; its build code alone does not.
    sys.path.insert(0, str(aiter / "aiter"))
    core = importlib.import_module("jit.core")
    build_fallback(core)
    bad = []
    for name in dict.fromkeys([*PATH_MODULES, FALLBACK, *had]):
        module = aiter / "aiter/jit" / f"{name}.so"
        if not module.is_file():
            bad.append(f"{name}.so was not built")
        # Host code alone names no GPU: the assembly kernels are files of their own.
        elif core._so_offload_archs(module) not in ({ARCH}, set()):
            bad.append(f"{name}.so is for {sorted(core._so_offload_archs(module))}, not {ARCH}")
    if bad:
        sys.exit("error: aiter was not built whole\n  " + "\n  ".join(bad))
    print(f"aiter: {len(list((aiter / 'aiter/jit').glob('*.so')))} modules for {ARCH}")


if __name__ == "__main__":
    main()
