"""The prebuild step of the GPU image: every module that is expected is there, and for gfx950; else the build fails.

aiter's own build is stood in for; nothing is compiled.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = ("module_aiter_core", "module_fmha_v3_varlen_fwd", "module_fmha_v3_fwd", "module_moe_asm")
FALLBACK = "mha_batch_prefill_fp8bf16_nlogits_nbias_mask_nlse_ndropout_pertensor_nsink"
SETUP = """
import os, pathlib
assert os.environ["PREBUILD_KERNELS"] == "1"
for name in {modules}:
    pathlib.Path("aiter/jit", name + ".so").write_bytes(b"amdhsa--{arch}")
"""


@pytest.fixture
def aiter(tmp_path: Path) -> Path:
    """An aiter with a stale module and a lock of a build that is no more."""
    jit = tmp_path / "aiter/aiter/jit"
    (jit / "build").mkdir(parents=True)
    (jit / "__init__.py").write_text("")
    (jit / "core.py").write_text((ROOT / "tests/docker/vendor/core.py").read_text())
    (jit / "module_old.so").write_bytes(b"")
    (jit / "build/lock_module_old").write_text("")
    return tmp_path / "aiter"


def prebuild(aiter: Path, *modules: str, arch: str = "gfx950") -> subprocess.CompletedProcess[str]:
    """Run the step; the base image had one module beyond those of the path."""
    (aiter / "setup.py").write_text(SETUP.format(modules=modules, arch=arch))
    had = aiter.parent / "modules"
    had.write_text("module_moe_asm\n")
    argv = [sys.executable, str(ROOT / "docker/steps/prebuild.py"), str(aiter), str(had)]
    return subprocess.run(argv, capture_output=True, text=True, env={**os.environ, "HOME": str(aiter.parent / "home")})


def test_every_module_is_there_and_nothing_stale(aiter: Path) -> None:
    done = prebuild(aiter, *MODULES)
    assert done.returncode == 0, done.stderr
    assert {path.stem for path in (aiter / "aiter/jit").glob("*.so")} == {*MODULES, FALLBACK}
    assert "5 modules for gfx950" in done.stdout
    assert not (aiter / "aiter/jit/build").exists()


def test_a_module_that_the_base_had_and_this_build_has_not(aiter: Path) -> None:
    done = prebuild(aiter, *MODULES[:-1])
    assert done.returncode == 1
    assert "module_moe_asm.so was not built" in done.stderr


def test_a_module_for_another_gpu(aiter: Path) -> None:
    done = prebuild(aiter, *MODULES, arch="gfx942")
    assert done.returncode == 1
    assert "module_fmha_v3_varlen_fwd.so is for ['gfx942'], not gfx950" in done.stderr
    assert FALLBACK not in done.stderr, "what is right is not named"
