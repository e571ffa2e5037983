"""The JSON documents of ``fastfill serve --json`` and ``fastfill profiles --json``."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from fastfill.serving.flags import redact, redact_env
from fastfill.serving.launch import Launch
from fastfill.serving.profile import Profile


class FindingLine(BaseModel):
    """One finding of the checks."""

    id: str
    severity: Literal["refuse", "warn", "note"]
    what: str
    fix: str


class MemoryLine(BaseModel):
    """The memory sum, in MiB a GPU."""

    gpu_mib: float
    single_pass_tokens: int
    reserved: dict[str, float]
    mem_fraction_static: float
    weights_mib: float | None
    kv_cache_mib: float | None


class ServeDocument(BaseModel):
    """One launch; secrets are replaced."""

    schema_: Literal["fastfill.serve/1"] = Field(default="fastfill.serve/1", serialization_alias="schema")
    profile: str
    env: dict[str, str]
    argv: list[str]
    state_dir: str
    memory: MemoryLine | None
    notes: list[str]
    findings: list[FindingLine]


class ProfileLine(BaseModel):
    """One profile."""

    name: str
    description: str
    env: dict[str, str]
    flags: dict[str, bool | int | float | str | list[str]]
    forced_fallback: bool
    longest_prompt: int | None


class ProfilesDocument(BaseModel):
    """Every shipped profile."""

    schema_: Literal["fastfill.profiles/1"] = Field(default="fastfill.profiles/1", serialization_alias="schema")
    profiles: list[ProfileLine]


def describe(profile: str, launch: Launch) -> dict[str, Any]:
    """The document of one launch."""
    plan = launch.memory
    memory = plan and MemoryLine(
        gpu_mib=plan.gpu_mib,
        single_pass_tokens=plan.single_pass_tokens,
        reserved={line.what: line.mib for line in plan.reserved},
        mem_fraction_static=plan.fraction,
        weights_mib=plan.weights_mib,
        kv_cache_mib=plan.cache_mib,
    )
    document = ServeDocument(
        profile=profile,
        env=redact_env(launch.command.env),
        argv=redact(launch.command.argv),
        state_dir=str(launch.state_dir),
        memory=memory,
        notes=list(launch.settings.notes),
        findings=[FindingLine.model_validate(finding._asdict()) for finding in launch.findings],
    )
    return document.model_dump(mode="json", by_alias=True)


def describe_profiles(profiles: list[Profile]) -> dict[str, Any]:
    """The document of the shipped profiles."""
    lines = [
        ProfileLine(
            name=profile.name,
            description=profile.fastfill.description,
            env=redact_env(profile.env),
            flags=profile.flags,
            forced_fallback=profile.fastfill.forced_fallback,
            longest_prompt=profile.fastfill.longest_prompt,
        )
        for profile in profiles
    ]
    return ProfilesDocument(profiles=lines).model_dump(mode="json", by_alias=True)
