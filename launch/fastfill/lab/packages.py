"""Makes fastfill's two packages importable in the lab's environment, with the entry point that SGLang looks for.

A folder of links for each checkout, put on PYTHONPATH: the environment itself stays free of any one checkout.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from pathlib import Path

from fastfill import __version__
from fastfill.errors import NotReadyError
from fastfill.lab import cache

_ENTRY_POINTS = "[sglang.srt.plugins]\nfastfill = sglang_fastfill.plugin:register\n"
_METADATA = f"Metadata-Version: 2.1\nName: fastfill\nVersion: {__version__}\n"


def _package(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise NotReadyError(
            f"the package {name} is not installed", where=sys.executable, next_step="reinstall fastfill"
        )
    return Path(spec.origin).resolve().parent


def link() -> Path:
    """The folder to put on PYTHONPATH: ``fastfill``, ``sglang_fastfill`` and a dist-info, for this installation."""
    sources = {name: _package(name) for name in ("fastfill", "sglang_fastfill")}
    digest = hashlib.sha256("\0".join([__version__, *map(str, sources.values())]).encode()).hexdigest()[:12]
    place = cache.folder("packages") / digest
    place.mkdir(exist_ok=True)
    for name, source in sources.items():
        _symlink(place / name, source)
    info = place / f"fastfill-{__version__}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(_METADATA, encoding="utf-8")
    (info / "entry_points.txt").write_text(_ENTRY_POINTS, encoding="utf-8")
    return place


def _symlink(link: Path, target: Path) -> None:
    if link.is_symlink() and link.readlink() == target:
        return
    link.unlink(missing_ok=True)
    link.symlink_to(target, target_is_directory=True)


def emulator() -> Path:
    """The folder of the emulated aiter."""
    return Path(__file__).resolve().parent / "emulator"


def standins() -> Path:
    """The folder of the CPU stand-ins."""
    return Path(__file__).resolve().parent / "standins"
