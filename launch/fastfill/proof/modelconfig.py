"""Finds the config.json of the served model, a second opinion on how many layers there are."""

from __future__ import annotations

import json
from pathlib import Path

from fastfill.errors import UsageError
from fastfill.proof.expected import calls_per_pass


def layers_from(given: Path | None, model_path: str) -> int | None:
    """Full-attention layers by config.json.

    Args:
        given: The operator's file (or a folder that holds one), which must then be readable.
        model_path: The server's model folder, used when it exists on this machine too.

    Returns:
        The number, or None where there is no config to read.

    Raises:
        UsageError: The given file is missing, no JSON, or names no layers.
    """
    if given is None:
        try:
            return _read(Path(model_path) / "config.json") if model_path else None
        except (OSError, ValueError):
            return None
    path = given / "config.json" if given.is_dir() else given
    try:
        return _read(path)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"cannot count layers from this config: {error}",
            where=str(path),
            next_step="give the config.json of the served model, or leave --model-config out",
        ) from error


def _read(path: Path) -> int:
    config = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(config, dict):
        raise ValueError("config.json holds no object")
    return calls_per_pass(config)
