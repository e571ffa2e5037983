"""Launch profiles: one TOML file each, with the environment, SGLang's flags, and what fastfill itself needs to know."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from fastfill import data
from fastfill.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FlagValue = bool | int | float | str | list[str]

_ENV_NAME = re.compile(r"^[A-Z][A-Z0-9_]*$")
_CORRECT = "correct the file; launch/profiles/long-context.toml shows the form"
_FLAG_NAME = re.compile(r"^[a-z0-9]+(-[a-z0-9]+)*$")


class Kit(BaseModel):
    """The ``[fastfill]`` table.

    Attributes:
        description: What the profile is for, in one sentence.
        forced_fallback: Whether a request may ask for the fallback by its rid, the negative control of ``prove``.
        longest_prompt: Tokens of the longest sequence (prompt and answer) that is admitted; with chunking off this is
            the largest single pass; with chunking on it is not used. None: the model's own context length.
        selfcheck: Whether ``serve`` runs ``fastfill selfcheck`` first and refuses to start where it fails.
        gpu_memory_gib: Memory of one GPU, in GiB.
        activation_mib_per_token: What a prefill pass needs per token beside weights and KV cache, in MiB.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    description: str = Field(min_length=1)
    forced_fallback: bool = False
    longest_prompt: int | None = Field(None, gt=0)
    selfcheck: bool = False
    gpu_memory_gib: float = Field(288.0, gt=0)
    activation_mib_per_token: float = Field(1.5, gt=0)


class Profile(BaseModel):
    """One profile, with what it extends already merged in.

    Attributes:
        name: Its file name without the suffix.
        env: Environment variables of the server.
        flags: SGLang's flags without the leading dashes; True is a bare flag, False none.
        fastfill: See :class:`Kit`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    env: dict[str, str] = {}
    flags: dict[str, FlagValue] = {}
    fastfill: Kit

    @field_validator("env")
    @classmethod
    def _environment_names(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            if not _ENV_NAME.match(name):
                raise ValueError(f"{name!r} is not the name of an environment variable")
        return value

    @field_validator("flags")
    @classmethod
    def _flag_names(cls, value: dict[str, FlagValue]) -> dict[str, FlagValue]:
        for name in value:
            if not _FLAG_NAME.match(name):
                raise ValueError(f"{name!r} is not a flag; write it without the leading dashes, in small letters")
        return value


def available() -> list[str]:
    """The names of the shipped profiles, sorted."""
    return sorted(path.stem for path in data.profiles().glob("*.toml"))


def load(name: str) -> Profile:
    """Read a profile by its name, or a file of your own by its path (anything with a ``/`` or ending in ``.toml``).

    Raises:
        UsageError: There is no such profile, or it is not well formed; the message names the file and the key.
    """
    path = Path(name) if "/" in name or name.endswith(".toml") else data.profiles() / f"{name}.toml"
    document = _merged(path, ())
    document["name"] = path.stem
    try:
        # Strict: TOML has types, and a number that became text would only fail once the server starts.
        return Profile.model_validate(document, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"] if part not in ("bool", "int", "float", "str", "list[str]"))
        says = "unknown key" if first["type"] == "extra_forbidden" else first["msg"]
        raise UsageError(f"{key}: {says}", where=str(path), next_step=_CORRECT) from None


def _read(path: Path) -> dict[str, Any]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(
            f"there is no profile {path.stem!r}",
            where=str(path),
            next_step=f"use one of {', '.join(available())}, or the path of a file of your own",
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the profile cannot be read: {error}", where=str(path), next_step=_CORRECT) from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"not valid TOML: {error}", where=str(path), next_step=_CORRECT) from None
    for table in ("env", "flags", "fastfill"):
        if not isinstance(document.setdefault(table, {}), dict):
            raise UsageError(f"{table}: must be a table", where=str(path), next_step=_CORRECT)
    return document


def _merged(path: Path, seen: tuple[Path, ...]) -> dict[str, Any]:
    document = _read(path)
    base = document.pop("extends", None)
    if base is None:
        return document
    if not isinstance(base, str):
        raise UsageError("extends: must be the name of a profile", where=str(path), next_step=_CORRECT)
    beside = path.parent / f"{base}.toml"
    parent_path = beside if beside.is_file() else data.profiles() / f"{base}.toml"
    seen = (*seen, path.resolve())
    if parent_path.resolve() in seen:
        raise UsageError(f"extends: {base} leads back to this profile", where=str(path), next_step="extend another one")
    merged = _merged(parent_path, seen)
    for table in ("env", "flags", "fastfill"):
        merged[table] = {**merged[table], **document.pop(table)}
    return {**merged, **document}
