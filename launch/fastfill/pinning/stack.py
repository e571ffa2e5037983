"""A stack file, ``docker/stacks/<name>.toml``, as values."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from fastfill import data
from fastfill.errors import UsageError
from fastfill.patching.series import read_series

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DEFAULT = "sglang-0.5.16"
REASONS = ("why", "source")
_CORRECT = f"correct the file; docker/stacks/{DEFAULT}.toml shows every key"
"""Fields that say why a value is what it is; they decide nothing, and no digest covers them."""

Commit = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{40})?$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{64})?$")]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    why: str = Field(min_length=1)
    source: str = Field(min_length=1)


class Base(_Table):
    """The vendor's image. ``digest`` is ``sha256:...``, or empty until it is resolved."""

    image: str
    tag: str
    digest: str = Field(pattern=r"^(sha256:[0-9a-f]{64})?$")

    @property
    def reference(self) -> str:
        """What FROM takes. Without a digest it is no image's name, and says what to do in the builder's own error."""
        return f"{self.image}:{self.tag}@{self.digest}" if self.digest else UNRESOLVED


UNRESOLVED = "the base image has no digest yet: run `fastfill pins resolve`"


class Sglang(_Table):
    """SGLang's release, and its commit in its repository."""

    repository: str
    version: str
    commit: Commit


class Submodule(_Table):
    """aiter's one submodule that a build needs."""

    path: str
    repository: str
    commit: Commit


class Kernels(_Table):
    """The head-dim-256 fp8 objects by file name."""

    sha256: dict[str, Sha256]


class Aiter(_Table):
    """aiter's commit and what belongs to it."""

    repository: str
    commit: Commit
    version: str
    submodule: Submodule
    kernels: Kernels


class Patches(_Table):
    """The patch series; ``sha256`` is over the patches' own hashes, in order."""

    series: str
    sha256: Sha256


class Model(_Table):
    """The model's repository on the hub and its commit there."""

    hub: str
    repository: str
    revision: Commit


class Host(_Table):
    """What the host is expected to have: least versions, and words of the kernel's command line."""

    amdgpu: str
    rocm: str
    kernel_arguments: tuple[str, ...]
    docker: str
    compose: str


class Stack(BaseModel):
    """One stack file.

    Attributes:
        name: The file's name without its suffix.
        unverified: Fields, as ``table.key``, that could not be looked up without a network.
        misfits: Names of aiter that do not fit what SGLang does with them, each with the reason why the model can do
            without; ``fastfill pins fit`` accepts these and no others.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    unverified: tuple[str, ...] = ()
    base: Base
    sglang: Sglang
    aiter: Aiter
    patches: Patches
    model: Model
    host: Host
    misfits: dict[str, str] = Field(default_factory=dict)

    def digest(self) -> str:
        """SHA-256 in hex over every value that decides something; reasons and the list of unverified fields do not."""
        return _digest({name: value for name, value in self.values() if name != "unverified"})

    def kernel_digest(self) -> str:
        """The same over what compiled kernels depend on, the base image and aiter: a cache of them lives as long."""
        return _digest({name: value for name, value in self.values() if name.startswith(("base.", "aiter."))})

    @property
    def image(self) -> str:
        """The name and tag of the image that is built from this stack."""
        return f"fastfill:{self.name}-{self.digest()[:12]}"

    def values(self) -> Iterator[tuple[str, Any]]:
        """Every value as ``(table.key, value)``, reasons left out."""
        return _flat(self.model_dump(mode="json", exclude={"misfits"}), "")


class Reason(NamedTuple):
    """Why a table's values are what they are."""

    table: str
    why: str
    source: str


def reasons(stack: Stack) -> list[Reason]:
    """The reason of every table, in the file's order."""
    found: list[Reason] = []

    def walk(table: BaseModel, prefix: str) -> None:
        if isinstance(table, _Table):
            found.append(Reason(prefix, table.why, table.source))
        for name in type(table).model_fields:
            value = getattr(table, name)
            if isinstance(value, BaseModel):
                walk(value, f"{prefix}.{name}".lstrip("."))

    walk(stack, "")
    return found


def _flat(value: dict[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, item in value.items():
        if name in REASONS:
            continue
        if isinstance(item, dict):
            yield from _flat(item, f"{prefix}{name}.")
        else:
            yield prefix + name, item


def _digest(values: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def available() -> list[str]:
    """The names of the stacks, the default first."""
    names = sorted(path.stem for path in data.stacks().glob("*.toml"))
    return sorted(names, key=lambda name: name != DEFAULT)


def path_of(name: str) -> Path:
    """The file of a stack by its name, or by its own path (anything with a ``/`` or ending in ``.toml``)."""
    return Path(name) if "/" in name or name.endswith(".toml") else data.stacks() / f"{name}.toml"


def load(name: str = DEFAULT) -> Stack:
    """Read a stack.

    Raises:
        UsageError: There is no such stack, or it is not well formed; the message names the file and the key.
    """
    path = path_of(name)
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        stack = Stack.model_validate(document)
    except FileNotFoundError:
        raise UsageError(
            f"there is no stack {path.stem!r}", where=str(path), next_step=f"use one of: {', '.join(available())}"
        ) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"the stack file cannot be read: {error}", where=str(path), next_step=_CORRECT) from None
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        says = "unknown key" if first["type"] == "extra_forbidden" else first["msg"]
        raise UsageError(f"{key}: {says}", where=str(path), next_step=_CORRECT) from None
    known = {field for field, _ in stack.values()}
    for field in stack.unverified:
        if field not in known:
            raise UsageError(f"unverified: there is no field {field}", where=str(path), next_step=_CORRECT)
    if stack.name != path.stem:
        raise UsageError(
            f"name: {stack.name!r} in a file named {path.stem!r}", where=str(path), next_step="name both the same"
        )
    return stack


def series_digest(folder: Path) -> str:
    """SHA-256 in hex over the patches of a series, in order: one ``<sha256>  <name>`` line each."""
    lines = "".join(f"{patch.sha256}  {patch.name}\n" for patch in read_series(folder).patches)
    return hashlib.sha256(lines.encode()).hexdigest()


def replace(text: str, field: str, value: str) -> str:
    """The stack file's text with one string value replaced; comments and order stay.

    Args:
        text: The file.
        field: As ``table.key``.
        value: The new value.

    Raises:
        UsageError: The file has no such line.
    """
    table, _, key = field.rpartition(".")
    current, lines = "", text.splitlines(keepends=True)
    for number, line in enumerate(lines):
        header = re.match(r"\[([^\[\]]+)\]", line)
        if header:
            current = header[1]
        elif current == table and re.match(rf'{re.escape(key)} = "[^"]*"\s*$', line):
            lines[number] = f'{key} = "{value}"\n'
            return "".join(lines)
    raise UsageError(
        f'the stack file has no line {key} = "..." in [{table}]', where="docker/stacks", next_step=f'add {key} = ""'
    )
