"""Reads a Hugging Face checkpoint folder without loading it: the index, the weight files' headers, single scalars."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
_LENGTH = struct.Struct("<Q")
_HEADER_LIMIT = 100_000_000
"""The format's own limit of a header, in bytes."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a checkpoint folder holds.

    Attributes:
        path: The folder.
        problems: Why it is not complete, one line each; empty for a complete one.
        present_bytes: Bytes of the weight files that are there.
        total_bytes: Bytes of all tensors by the index; None without an index.
    """

    path: Path
    problems: tuple[str, ...]
    present_bytes: int
    total_bytes: int | None


def inspect(folder: Path) -> Checkpoint:
    """Say whether a checkpoint is complete: config, index, every weight file at its full length, a tokenizer."""
    problems: list[str] = []
    if not folder.is_dir():
        return Checkpoint(folder, (f"{folder} is not a folder",), 0, None)
    if not (folder / "config.json").is_file():
        problems.append("config.json is missing")
    if not any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer.model", "vocab.json")):
        problems.append("there is no tokenizer (tokenizer.json, tokenizer.model or vocab.json)")
    names, total, trouble = weight_files(folder)
    problems += [trouble] if trouble else []
    present = 0
    for name in names:
        path = folder / name
        if not path.is_file():
            problems.append(f"{name} is missing")
            continue
        present += path.stat().st_size
        try:
            length = _whole_length(header(path))
        except (OSError, ValueError) as error:
            problems.append(f"{name} cannot be read: {error}")
            continue
        if length != path.stat().st_size - header_bytes(path):
            problems.append(f"{name} is cut short: {path.stat().st_size} bytes of {length + header_bytes(path)}")
    return Checkpoint(folder, tuple(problems), present, total)


def weight_files(folder: Path) -> tuple[list[str], int | None, str]:
    """The weight files by the index (or the single file), the bytes of all tensors if known, and what is wrong."""
    index = folder / INDEX
    if not index.exists():
        return (
            ([SINGLE], None, "") if (folder / SINGLE).exists() else ([], None, f"there is no {INDEX} and no {SINGLE}")
        )
    try:
        document = json.loads(index.read_text(encoding="utf-8"))
        names = sorted({str(name) for name in document["weight_map"].values()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return [], None, f"{INDEX} cannot be read: {type(error).__name__} {error}"
    size = (document.get("metadata") or {}).get("total_size")
    return names, int(size) if isinstance(size, (int, float)) else None, ""


def header_bytes(path: Path) -> int:
    """Bytes before the first tensor of a safetensors file."""
    with path.open("rb") as file:
        return _LENGTH.size + int(_LENGTH.unpack(_exactly(file.read(_LENGTH.size)))[0])


def header(path: Path) -> dict[str, Any]:
    """The JSON header of a safetensors file: tensor name to dtype, shape and data_offsets.

    Raises:
        ValueError: The file is no safetensors file.
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        (length,) = _LENGTH.unpack(_exactly(file.read(_LENGTH.size)))
        if length > _HEADER_LIMIT:
            raise ValueError(f"a header of {length} bytes: not a safetensors file")
        found = json.loads(file.read(length))
    if not isinstance(found, dict):
        raise ValueError("the header is not a JSON object")
    return found


def scalar(path: Path, name: str) -> float | None:
    """The value of a one-element tensor; None if it is not there, has several elements, or has another dtype.

    Raises:
        ValueError: The file is no safetensors file.
        OSError: It cannot be read.
    """
    entry = header(path).get(name)
    if not isinstance(entry, Mapping) or "data_offsets" not in entry:
        return None
    begin, end = entry["data_offsets"]
    with path.open("rb") as file:
        file.seek(header_bytes(path) + begin)
        data = file.read(end - begin)
    return _number(str(entry.get("dtype")), data)


def _number(dtype: str, data: bytes) -> float | None:
    if dtype == "F32" and len(data) == 4:
        return float(struct.unpack("<f", data)[0])
    if dtype == "BF16" and len(data) == 2:
        return float(struct.unpack("<f", b"\x00\x00" + data)[0])
    if dtype == "F16" and len(data) == 2:
        return float(struct.unpack("<e", data)[0])
    return None


def _exactly(data: bytes) -> bytes:
    if len(data) != _LENGTH.size:
        raise ValueError("an empty or cut header")
    return data


def _whole_length(found: dict[str, Any]) -> int:
    ends = [entry["data_offsets"][1] for name, entry in found.items() if name != "__metadata__"]
    return max(ends, default=0)
