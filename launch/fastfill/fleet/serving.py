"""What the unit runs: the proven release in the foreground, across restarts of the engine beneath it."""

from __future__ import annotations

import os
import socket
import sys
import time

from fastfill.errors import ExitCode, FastfillError, NotReadyError
from fastfill.fleet.engine import Engine
from fastfill.fleet.places import Instance

ENGINE_RETURNS = 300.0
"""Seconds that an engine may be away: with live-restore the server runs on meanwhile."""


def serve(engine: Engine, instance: Instance, *, every: float = 2.0) -> int:
    """Start what ``proven`` names, and end when its container does.

    Returns:
        The container's exit code.

    Raises:
        NotReadyError: Nothing was proven here.
        FastfillError: It cannot be started, or the engine went away and stays away.
    """
    release = instance.link("proven")
    if release is None:
        raise NotReadyError("nothing was proven here", where=str(instance.folder), next_step="ansible/site.yml")
    ran = engine.up(instance, release)
    if ran.code != 0:
        raise FastfillError(
            f"{release} does not start: {ran.err.strip()[-500:]}",
            where=instance.container,
            next_step=f"on this host: docker logs {instance.container}; back with ansible/rollback.yml",
        )
    sys.stderr.write(f"{instance.name}: {release} runs\n")
    notify("READY=1")
    while True:
        ended = engine.wait(instance)
        if ended.code == 0 and ended.out.strip().isdigit():
            return int(ended.out.strip())
        code = _after(engine, instance, every)
        if code is not None:
            return code


def _after(engine: Engine, instance: Instance, every: float) -> int | None:
    """Waiting broke off: None when the server runs on, its exit code when it has ended."""
    end = time.monotonic() + ENGINE_RETURNS
    while True:
        try:
            state = engine.state(instance)
        except FastfillError:
            if time.monotonic() >= end:
                raise
        else:
            if state.status == "running":
                return None
            return state.exit_code or int(ExitCode.CHECK_FAILED)
        time.sleep(every)


def notify(state: str) -> None:
    """Tell systemd, where it started us."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
            to.sendto(state.encode(), "\0" + address[1:] if address.startswith("@") else address)
