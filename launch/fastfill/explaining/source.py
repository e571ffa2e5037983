"""Finds and reads the model that is asked about."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from fastfill.errors import UsageError
from fastfill.model_config import ModelShape, read
from fastfill.serving.model import find

DEPENDENT = (
    "head_dim_not_256",
    "gqa_ratio",
    "sliding_window",
    "attention_sinks",
    "logit_softcap",
    "cross_attention",
    "mla",
    "no_kv_input",
)
"""The conditions that depend on the model."""


class Source(NamedTuple):
    """A model: its shape, and the folder of its checkpoint (None for a lone config.json)."""

    shape: ModelShape
    folder: Path | None


def model(given: str, environ: Mapping[str, str]) -> Source:
    """Read a checkpoint's folder, a config.json, or a name that is in Hugging Face's cache on this machine.

    A config.json that is no JSON object gives a shape of which nothing is known.

    Raises:
        UsageError: It is not there, or contradicts itself.
    """
    path = Path(given)
    if path.is_file():
        beside = path.parent if path.name == "config.json" else None
        return Source(_shape(path, beside), beside)
    folder = path if path.is_dir() else find(given, dict(environ))
    if folder is None:
        raise UsageError(
            "there is no such file or folder, and the name is not in the cache",
            where=given,
            next_step=f"hf download {given} config.json model.safetensors.index.json, then try again",
        )
    return Source(_shape(folder / "config.json", folder), folder)


def _shape(path: Path, folder: Path | None) -> ModelShape:
    try:
        config = _object(path)
    except ValueError as error:
        return unreadable(f"{path}: {error}")
    extra = folder / "hf_quant_config.json" if folder is not None else None
    try:
        return read(config, _object(extra) if extra is not None and extra.is_file() else None)
    except ValueError as error:
        raise UsageError(f"this config contradicts itself: {error}", where=str(path)) from error


def unreadable(why: str) -> ModelShape:
    """The shape of a model of which nothing is known."""
    return replace(read({}), missing=dict.fromkeys(DEPENDENT, why))


def _object(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"this cannot be read: {error.strerror}", where=str(path)) from error
    except ValueError as error:
        raise ValueError(f"this is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ValueError("this is JSON, but not an object")
    return found
