"""What a launch needs to know of the model, read from its config.json and its weight files' sizes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from fastfill.errors import UsageError

_AGAIN = "fetch the checkpoint again: fastfill model fetch --into DIR"


class ModelFacts(NamedTuple):
    """One checkpoint.

    Attributes:
        folder: Where its config.json was read.
        context_length: The longest sequence it was made for, in tokens; None when the config does not say.
        head_dim: Of the full-attention layers; None when the config does not say.
        q_heads: Attention heads of the whole model; None likewise.
        kv_heads: Key/value heads of the whole model; None likewise.
        vision: The vision encoder's config, None for a text model.
        weight_bytes: Bytes of all weight files; None when they are not here.
    """

    folder: Path
    context_length: int | None
    head_dim: int | None
    q_heads: int | None
    kv_heads: int | None
    vision: dict[str, Any] | None
    weight_bytes: int | None


def find(model: str, environ: dict[str, str]) -> Path | None:
    """The folder of a model that is on this machine: a path, or a Hugging Face id that is in the cache.

    Raises:
        UsageError: A path was given (absolute, or beginning with a dot or ``~``; or a file) and it is no folder.
    """
    path = Path(model).expanduser()
    if path.is_dir():
        return path
    if path.is_file() or model.startswith(("/", ".", "~")):
        raise UsageError(
            "this is a file, and no model's folder" if path.is_file() else "there is no model here",
            where=str(path),
            next_step="give --model a folder, or a Hugging Face id (ORG/NAME)",
        )
    home = Path(environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    cache = Path(environ.get("HF_HUB_CACHE") or home / "hub") / f"models--{model.replace('/', '--')}"
    try:
        revision = (cache / "refs" / "main").read_text(encoding="utf-8").strip()
    except OSError:
        return None
    snapshot = cache / "snapshots" / revision
    return snapshot if snapshot.is_dir() else None


def read(folder: Path) -> ModelFacts:
    """The facts of one checkpoint.

    Raises:
        UsageError: There is no config.json, or it is not valid JSON, or no object.
    """
    try:
        config: Any = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(
            f"config.json cannot be read: {error.strerror}",
            where=str(folder / "config.json"),
            next_step="give --model the folder that holds it",
        ) from None
    except ValueError as error:
        raise UsageError(
            f"config.json is not valid JSON: {error}", where=str(folder / "config.json"), next_step=_AGAIN
        ) from None
    if not isinstance(config, dict):
        raise UsageError("config.json holds no object", where=str(folder / "config.json"), next_step=_AGAIN)
    nested = config.get("text_config")
    text: dict[str, Any] = nested if isinstance(nested, dict) else config
    q_heads = _count(text, "num_attention_heads")
    hidden = _count(text, "hidden_size")
    vision = config.get("vision_config")
    return ModelFacts(
        folder=folder,
        context_length=_count(text, "max_position_embeddings"),
        head_dim=_count(text, "head_dim") or (hidden // q_heads if hidden and q_heads else None),
        q_heads=q_heads,
        kv_heads=_count(text, "num_key_value_heads") or q_heads,
        vision=vision if isinstance(vision, dict) else None,
        weight_bytes=_weights(folder),
    )


def _count(config: dict[str, Any], key: str) -> int | None:
    value = config.get(key)
    return value if isinstance(value, int) and value > 0 else None


def _weights(folder: Path) -> int | None:
    sizes = [os.stat(path).st_size for path in folder.glob("*.safetensors")]  # noqa: PTH116 (follows cache links)
    return sum(sizes) or None
