"""How one arm takes the place of the other on a server that is up: the kill switch."""

from __future__ import annotations

from typing import Protocol

from fastfill.benchmark.arms import Arm
from fastfill.benchmark.connection import Connection
from fastfill.benchmark.journal import Journal
from fastfill.errors import FastfillError
from fastfill.proof.server import Server, no_plugin
from fastfill.proof.turning import turn as order


class Target(Protocol):
    """A server, or several one after another, that can be each of the arms."""

    url: str
    described: str

    def take(self, arm: Arm) -> bool:
        """Make the server this arm; returns whether it was started anew.

        Raises:
            FastfillError: It cannot be.
        """

    def close(self) -> None:
        """Leave things as they were found."""


class PathTarget:
    """A server that is up already; the kill switch makes the arms, and is put back at the end.

    Args:
        who: For the switch's audit log.
        journal: Where it is written down where the switch stood: a benchmark that is killed leaves it turned, and the
            one that goes on would take that for how it was.
    """

    def __init__(self, connection: Connection, who: str, journal: Journal | None = None) -> None:
        self.connection = connection
        self.url = connection.url
        self.described = f"the server at {connection.url}, arms by the kill switch"
        self._who = who
        self._journal = journal
        self._before: str | None = journal.switch_left() if journal is not None else None

    def take(self, arm: Arm) -> bool:
        """Throw the switch; False, as nothing was started."""
        found = self._turn(arm.path)
        if self._before is None:
            self._before = found
            self._note(found)
        return False

    def close(self) -> None:
        """Put the switch back.

        Raises:
            FastfillError: It cannot be; the message says where it must go.
        """
        if self._before is None:
            return
        before, self._before = self._before, None
        try:
            self._turn(before)
        except FastfillError as error:
            raise FastfillError(
                f"the kill switch was {before} before this benchmark and could not be put back: {error.what}",
                where=self.url,
                next_step=f"fastfill path {before} --url {self.url}",
                code=error.code,
            ) from error
        self._note("")

    def _note(self, before: str) -> None:
        if self._journal is not None:
            self._journal.add("switch", before=before)

    def _turn(self, state: str) -> str:
        """Turn the switch where it stands otherwise; returns where it stood."""

        def turn(server: Server) -> str:
            status = server.status()
            if status is None:
                raise no_plugin(server.url)
            if status.path.path != state:
                why = "fastfill bench: the next arm"
                order(server, state, who=self._who, why=why, admin_key=self.connection.admin_key)
            return str(status.path.path)

        return self.connection.visit(turn)
