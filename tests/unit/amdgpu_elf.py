"""Builds small ELF files of the kind that ROCm loads: an AMDGPU header, one kernel symbol, no code worth running."""

from __future__ import annotations

import struct

GFX942, GFX950 = 0x4C, 0x4F
EM_X86_64, EM_AMDGPU = 62, 224
_HEADER, _SECTION, _SYMBOL = 64, 64, 24


def build(symbol: str, *, mach: int = GFX950, machine: int = EM_AMDGPU, code: bytes = b"\x00" * 16) -> bytes:
    """An ELF64 shared object with one global function (none for "")."""
    names = b"\x00.dynsym\x00.dynstr\x00.text\x00.shstrtab\x00"
    strings = b"\x00" + symbol.encode() + b"\x00"
    symbols = b"\x00" * _SYMBOL
    if symbol:
        symbols += struct.pack("<IBBHQQ", 1, 0x12, 3, 3, 0, len(code))
    bodies = [symbols, strings, code, names]
    offsets, at = [], _HEADER
    for body in bodies:
        offsets.append(at)
        at += len(body)
    header = struct.pack(
        "<4sBBBBB7xHHIQQQIHHHHHH",
        b"\x7fELF", 2, 1, 1, 64, 4,  # 64 bits, little endian, version 1, AMD HSA, ABI version 4
        3, machine, 1, 0, 0, at, 0x500 | mach, _HEADER, 0, 0, _SECTION, 5, 4,
    )  # fmt: skip
    table = b"\x00" * _SECTION
    for name, kind, index, link, entry in ((1, 11, 0, 2, _SYMBOL), (9, 3, 1, 0, 0), (17, 1, 2, 0, 0), (23, 3, 3, 0, 0)):
        table += struct.pack(
            "<IIQQQQIIQQ", name, kind, 0, 0, offsets[index], len(bodies[index]), link, 1 if kind == 11 else 0, 1, entry
        )
    return header + b"".join(bodies) + table
