"""The checkpoint's k and v scales: which of its tensors a release loads, and whether all of them are 1."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fastfill import checkpoint
from fastfill.explaining.tables import table
from fastfill.model_config import ModelShape

_SCALE = re.compile(r"(?:[kv]_scale|kv_scale|output_scale)$")
Verdict = Literal["one", "other", "unknown"]


@dataclass(frozen=True, slots=True)
class Scales:
    """What k and v are divided by in the KV cache: ``one``, ``other`` or ``unknown``, and the value that decided it."""

    verdict: Verdict
    detail: str


def read(folder: Path | None, shape: ModelShape, names: tuple[str, ...]) -> Scales:
    """Judge the scales of a checkpoint.

    Args:
        folder: Its folder; None when only a config.json is known.
        shape: The model; one that is not quantised has no scales.
        names: Endings of the tensors that the release loads for Qwen3.5; for others see ``loader`` in releases.toml.
    """
    index = _index(folder) if folder is not None else None
    if index is None:
        if not shape.quantised:
            return Scales("one", "the checkpoint is not quantised: no scales")
        return Scales("unknown", "the checkpoint is quantised and its index is not here")
    found = {name: file for name, file in index.items() if _SCALE.search(name)}
    endings = _endings(shape.architecture, names)
    loaded = found if endings is None else {name: file for name, file in found.items() if name.endswith(endings)}
    if not loaded:
        ignored = f" ({len(found)} of other names are ignored, such as {min(found)})" if found else ""
        return Scales("one", f"the checkpoint holds no scales that this release loads{ignored}")
    assert folder is not None
    for name, file in sorted(loaded.items()):
        try:
            value = checkpoint.scalar(folder / file, name)
        except (OSError, ValueError):
            value = None
        if value is None:
            return Scales("unknown", f"{name} is in the index, and its value cannot be read in {file}")
        if value != 1.0:
            detail = f"{name} = {value:g}"
            if endings is not None:
                return Scales("other", detail)
            return Scales("unknown", f"{detail}, and whether SGLang loads it for {shape.architecture} is not known")
    return Scales("one", f"all {len(loaded)} scales are 1")


def _endings(architecture: str, of_release: tuple[str, ...]) -> tuple[str, ...] | None:
    """The endings that an architecture's loader takes; None where it was not read."""
    for loader in table("releases")["loader"]:
        if architecture.startswith(loader["architecture"]):
            return tuple(loader["endings"]) if "endings" in loader else of_release
    return None


def _index(folder: Path) -> dict[str, str] | None:
    try:
        document: Any = json.loads((folder / checkpoint.INDEX).read_text(encoding="utf-8"))
        return {str(name): str(file) for name, file in document["weight_map"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    try:
        return dict.fromkeys(checkpoint.header(folder / checkpoint.SINGLE), checkpoint.SINGLE)
    except (OSError, ValueError):
        return None
