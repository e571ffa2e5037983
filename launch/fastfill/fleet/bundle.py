"""The fleet's own tool as one file, for hosts that have Python and nothing else."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

_EPOCH = (1980, 1, 1, 0, 0, 0)
_MAIN = """import sys
if sys.version_info < (3, 10):
    sys.exit("error: needs Python 3.10, has " + sys.version.split()[0])
from fastfill.fleet.cli import main
sys.exit(main())
"""
_SHARED = ("checkpoint.py", "errors.py", "weights.py")
"""Modules of the command line that the tool uses: standard library only, like its own."""


def content() -> bytes:
    """The file's bytes; the same sources give the same bytes."""
    here = Path(__file__).parent
    files = {"__main__.py": _MAIN, "fastfill/__init__.py": ""}
    for name in _SHARED:
        files[f"fastfill/{name}"] = (here.parent / name).read_text(encoding="utf-8")
    for source in sorted(here.glob("*.py")):
        files[f"fastfill/fleet/{source.name}"] = source.read_text(encoding="utf-8")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        for name, text in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), text)
    return b"#!/usr/bin/env python3\n" + packed.getvalue()


def write(file: Path) -> bool:
    """Write it where it differs; returns whether it did."""
    wanted = content()
    if file.is_file() and file.read_bytes() == wanted:
        return False
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(wanted)
    file.chmod(0o755)
    return True
