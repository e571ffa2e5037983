"""Reads one kernel object or prebuilt module: what its own headers and symbols say, whatever its name says."""

from __future__ import annotations

import hashlib
import mmap
import re
from pathlib import Path
from typing import NamedTuple

EM_AMDGPU = 224
_MACH_MASK = 0xFF
MACHINES = {
    0x30: "gfx908",
    0x3F: "gfx90a",
    0x40: "gfx940",
    0x41: "gfx1100",
    0x4B: "gfx941",
    0x4C: "gfx942",
    0x4E: "gfx1201",
    0x48: "gfx1200",
    0x4F: "gfx950",
}
"""``EF_AMDGPU_MACH`` values, from LLVM's AMDGPU usage guide; only those that a mix-up could bring."""

_TRIPLE = re.compile(rb"amdgcn-amd-amdhsa--(gfx[0-9a-z]+)")


class KernelObject(NamedTuple):
    """One ``.co`` file.

    Attributes:
        name: Its file name.
        sha256: Hex digest of its bytes.
        arch: The GPU its ELF header names (``gfx950``), ``mach 0x..`` for one not listed, "" if it is no AMDGPU object.
        symbol: The kernel's mangled name, "" if there is none.
        problem: Why it could not be read, "" if it could.
    """

    name: str
    sha256: str
    arch: str
    symbol: str
    problem: str


class PrebuiltModule(NamedTuple):
    """One compiled extension module.

    Attributes:
        archs: The GPUs that it holds device code for; empty for host-only or compressed code.
        knows_kernel: Whether the kernel's file name is compiled into it.
        problem: Why it could not be read, "" if it could.
    """

    archs: tuple[str, ...]
    knows_kernel: bool
    problem: str


def read_object(path: Path) -> KernelObject:
    """Hash a ``.co`` file and read its ELF header and symbols; what is wrong with it goes to ``problem``.

    Raises:
        OSError: The file cannot be read.
    """
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    if content.startswith(b"version https://git-lfs"):
        return KernelObject(path.name, digest, "", "", "a Git LFS pointer, not the object itself")
    arch, symbol, problem = _read_elf(content)
    return KernelObject(path.name, digest, arch, symbol, problem)


def _read_elf(content: bytes) -> tuple[str, str, str]:
    import io
    import struct

    from elftools.common.exceptions import ELFError
    from elftools.construct import ConstructError
    from elftools.elf.elffile import ELFFile

    try:
        elf = ELFFile(io.BytesIO(content))
        if elf["e_machine"] not in ("EM_AMDGPU", EM_AMDGPU):
            return "", "", f"an ELF file for {elf['e_machine']}, not for an AMD GPU"
        mach = elf["e_flags"] & _MACH_MASK
        return MACHINES.get(mach, f"mach 0x{mach:02x}"), _kernel_symbol(elf), ""
    except (ELFError, ConstructError, struct.error, UnicodeDecodeError, ValueError, KeyError, AttributeError) as error:
        return "", "", f"not a whole ELF file ({error or type(error).__name__})"


def _kernel_symbol(elf: object) -> str:
    """The first global function symbol: a kernel object of aiter holds exactly one."""
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import SymbolTableSection

    assert isinstance(elf, ELFFile)
    for section in elf.iter_sections():
        if not isinstance(section, SymbolTableSection):
            continue
        for symbol in section.iter_symbols():
            info = symbol["st_info"]
            if info["type"] == "STT_FUNC" and info["bind"] == "STB_GLOBAL":
                return str(symbol.name)
    return ""


def read_module(path: Path, kernel_file: str) -> PrebuiltModule:
    """Find the GPU targets and the kernel's file name in a compiled module.

    The file is mapped, not read: modules reach hundreds of MB.

    Raises:
        OSError: The file cannot be read.
    """
    if path.stat().st_size == 0:
        return PrebuiltModule((), False, "an empty file")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if content[:4] != b"\x7fELF":
            return PrebuiltModule((), False, "not an ELF file")
        archs = sorted({match.group(1).decode() for match in _TRIPLE.finditer(content)})
        return PrebuiltModule(tuple(archs), content.find(kernel_file.encode()) >= 0, "")
