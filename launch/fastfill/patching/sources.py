"""``sources.toml``: the SGLang version of a series, and the hashes of the files that it may be applied to."""

from __future__ import annotations

import sys
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fastfill.errors import UsageError

_FORM = "write it as patches/sglang-0.5.16/sources.toml is"

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


class Source(BaseModel):
    """One accepted content of one file.

    Attributes:
        sha256: The hash of the unpatched file.
        found_in: Where a file with this hash was seen: a wheel, a tag, an image.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    found_in: str = Field(min_length=1)


class Sources(BaseModel):
    """The whole file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: str
    files: dict[str, list[Source]]

    def accepts(self, path: str, sha256: str) -> bool:
        """Whether this is a known unpatched content of the file."""
        return any(source.sha256 == sha256 for source in self.files[path])


def read_sources(path: Path) -> Sources:
    """Read and validate one ``sources.toml``.

    Raises:
        UsageError: It is missing or not well formed; the message names the key.
    """
    try:
        return Sources.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise UsageError("the series has no sources.toml", where=str(path), next_step=_FORM) from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"not valid TOML: {error}", where=str(path), next_step=_FORM) from None
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"{key}: {first['msg']}", where=str(path), next_step=_FORM) from None
