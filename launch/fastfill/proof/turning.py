"""Throwing a server's kill switch: the order, and a look whether it took."""

from __future__ import annotations

from fastfill.errors import FastfillError
from fastfill.proof.server import Server, no_plugin
from fastfill.proof.wire import Status


def turn(server: Server, state: str, *, who: str, why: str, admin_key: str | None = None) -> Status:
    """Turn the path on or off; returns the status as it is then.

    Args:
        server: Which one.
        state: ``on`` or ``off``.
        who: For the audit log.
        why: For the audit log, and for whoever asks later.
        admin_key: For a server that has one.

    Raises:
        FastfillError: The server has no switch, refuses, or the order did not take.
    """
    if server.set_path(state, who=who, why=why, admin_key=admin_key) is None:
        raise no_plugin(server.url)
    # The answer to the order is not the proof that it took.
    found = server.status()
    if found is None or found.path.path != state:
        now = found.path if found else None
        raise FastfillError(
            f"the server took the order, but the path is {now.path if now else 'unknown'}, not {state}",
            where=f"{server.url}/fastfill/status" + (f" ({now.who} at {now.when})" if now else ""),
            next_step=f"fastfill path status --url {server.url}; look at FASTFILL_STATE_DIR on the server",
        )
    return found
