"""What a lab server is: the wish that ``lab up`` and the tests state, compared when a port is asked for twice."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fastfill.errors import UsageError
from fastfill.lab import models, stacks

DEFAULT_PORT = 30000


@dataclass(frozen=True)
class LabSpec:
    """One lab server.

    Attributes:
        profile: A launch profile, by name or path.
        model: A variant of ``fastfill.lab.models``, or a folder with a checkpoint.
        port: Where it listens.
        host: The address it listens on.
        tp: Tensor-parallel size, 1 or 2.
        stack: Which SGLang; ``<name>-unpatched`` serves the release's own files.
        env: Variables for the server; they win over the profile's. The emulator's faults go here.
        flags: Further SGLang flags; they win over the lab's.
        allow: Ids of refusals of ``fastfill serve`` that are accepted; ("all",) for a server that is wrong on purpose.
        state_dir: The state folder; None for a fresh one in the run folder.
    """

    profile: str = "long-context"
    model: str = "dense"
    port: int = DEFAULT_PORT
    host: str = "127.0.0.1"
    tp: int = 1
    stack: str = stacks.DEFAULT
    env: dict[str, str] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    state_dir: str | None = None

    def check(self) -> None:
        """Refuse what cannot be.

        Raises:
            UsageError: An unknown stack, profile, model or flag, a model whose config.json names no layers, or a
                tensor-parallel size that the lab does not do.
        """
        from fastfill.serving import arguments, profile

        release = stacks.find(self.stack).sglang
        profile.load(self.profile)
        if not {"all", "flag_unknown"} & set(self.allow):
            arguments.require(self.flags, release, "the flags after --")
        if self.model not in models.VARIANTS and not (Path(self.model) / "config.json").is_file():
            raise UsageError(
                f"there is no model {self.model}",
                where="--model",
                next_step=f"use one of {', '.join(models.VARIANTS)}, or a folder with a config.json",
            )
        if self.model not in models.VARIANTS:
            _check_config(Path(self.model) / "config.json")
        if self.tp not in (1, 2):
            raise UsageError(
                f"the lab serves with --tp 1 or 2, not {self.tp}", where="--tp", next_step="write --tp 1 or --tp 2"
            )
        if not 1 <= self.port <= 65535:
            raise UsageError(f"{self.port} is no port", where="--port", next_step="write one from 1 to 65535")

    def document(self) -> dict[str, Any]:
        """The spec as it is kept in the run folder."""
        return {**asdict(self), "flags": list(self.flags), "allow": list(self.allow)}

    @classmethod
    def read(cls, value: dict[str, Any]) -> LabSpec:
        """The inverse of :meth:`document`."""
        return cls(**{**value, "flags": tuple(value["flags"]), "allow": tuple(value["allow"])})

    def differences(self, other: LabSpec) -> list[str]:
        """The settings in which another spec differs, as ``name: this, not that``."""
        mine, theirs = self.document(), other.document()
        return [f"{name}: {theirs[name]}, not {mine[name]}" for name in mine if mine[name] != theirs[name]]


def _check_config(file: Path) -> None:
    from fastfill.proof.expected import calls_per_pass

    try:
        config = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(config, dict):
            raise ValueError("it holds no object")
        calls_per_pass(config)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"the model's config cannot be used: {error}",
            where=str(file),
            next_step=f"give a Hugging Face checkpoint's folder, or one of {', '.join(models.VARIANTS)}",
        ) from None
