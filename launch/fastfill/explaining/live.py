"""Reads a live server: its resolved flags, and what its own gate says where fastfill's plugin runs in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastfill.errors import UsageError
from fastfill.explaining.launch import Launch, from_server_info
from fastfill.explaining.releases import Release, patched, release
from sglang_fastfill.conditions import BY_ID, FLAG
from sglang_fastfill.state import ALLOW_FORCED_FALLBACK


@dataclass(frozen=True, slots=True)
class Live:
    """A server.

    Attributes:
        launch: Its flags, resolved.
        release: Its SGLang.
        model: The model's path or name, as the server has it.
        env: What our gate tells of its environment; None without the gate.
        gate: Condition id to status and value, the worst over the ranks; empty without the gate.
        operator_off: Whether the kill switch is thrown; None if it does not tell.
    """

    launch: Launch
    release: Release
    model: str
    env: Mapping[str, str] | None
    gate: Mapping[str, tuple[str, str]]
    operator_off: bool | None


def read(url: str, key_file: Path | None) -> Live:
    """Ask /server_info and /fastfill/status.

    Raises:
        NotReadyError: Nothing answers.
        UsageError: What answers is no SGLang server, or the URL or key is wrong.
    """
    from fastfill.proof.address import api_key, base_url
    from fastfill.proof.server import Server
    from fastfill.proof.transport import Transport

    with Transport(base_url(url), key=api_key(key_file)) as transport:
        reply = transport.get("/server_info")
        if reply.status != 200 or not isinstance(reply.value, dict) or "tp_size" not in reply.value:
            raise UsageError(
                f"this is no SGLang server: /server_info answered {reply.status}",
                where=url,
                next_step="give the URL of the server itself, not of a router",
            )
        status = Server(transport).status()
    return of(reply.value, status.model_dump() if status is not None else None)


def of(info: Mapping[str, Any], status: Mapping[str, Any] | None) -> Live:
    """What two documents say: /server_info, and /fastfill/status where there is one."""
    version = str(info.get("version") or "")
    ranks = list(status["ranks"]) if status else []
    ours = any(rank["patched"] for rank in ranks)
    return Live(
        launch=from_server_info(info),
        release=patched(version) if ours else release(version),
        model=str(info.get("model_path") or ""),
        env=_environment(ranks) if ours else None,
        gate=_worst(ranks) if ours else {},
        operator_off=status["path"]["path"] == "off" if status else None,
    )


def _environment(ranks: list[Mapping[str, Any]]) -> dict[str, str]:
    env = {name: "1" for rank in ranks for name in rank["near_miss"]}
    if all(rank["flag"] for rank in ranks):
        env[FLAG] = "1"
    if any(rank["forced_fallback_allowed"] for rank in ranks):
        env[ALLOW_FORCED_FALLBACK] = "1"
    return env


def _worst(ranks: list[Mapping[str, Any]]) -> dict[str, tuple[str, str]]:
    """A condition fails when it does on any rank; the plugin's own ``operator_off`` is the switch, told apart."""
    worst: dict[str, tuple[str, str]] = {}
    for rank in ranks:
        for id, held in rank["deployment"].items():
            if id in BY_ID and (id not in worst or held["status"] == "fail"):
                worst[id] = (held["status"], held["value"])
    return worst
