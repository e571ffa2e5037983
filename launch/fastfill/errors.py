"""Errors that an operator reads: what went wrong, where, and the next command."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What a fastfill command exits with."""

    OK = 0
    CHECK_FAILED = 1
    USAGE = 2
    INCONCLUSIVE = 3
    NOT_READY = 4
    TIMED_OUT = 124
    INTERRUPTED = 130


class FastfillError(Exception):
    """An expected failure, shown without a traceback.

    Args:
        what: One sentence: what went wrong.
        where: The file, URL, host or setting it concerns.
        next_step: The command or change that moves on.
        code: The exit code.
        detail: Further lines (a diff, the last log lines), shown as they are.

    Attributes:
        documented: Whether the command has printed this error in a JSON document of its own.
    """

    def __init__(
        self,
        what: str,
        *,
        where: str = "",
        next_step: str = "",
        code: ExitCode = ExitCode.CHECK_FAILED,
        detail: str = "",
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.next_step = next_step
        self.code = code
        self.detail = detail
        self.documented = False

    def document(self) -> dict[str, object]:
        """What a command prints for ``--json`` when it ends so (schema ``fastfill.error/1``)."""
        return {
            "schema": "fastfill.error/1",
            "error": {
                "what": self.what,
                "where": self.where,
                "detail": self.detail,
                "next_step": self.next_step,
                "exit_code": int(self.code),
            },
        }

    def lines(self) -> list[str]:
        """The message as it is printed to stderr, one element a line."""
        lines = [f"error: {self.what}"]
        if self.where:
            lines.append(f"  where: {self.where}")
        if self.detail:
            lines += [f"  | {line}" for line in self.detail.rstrip("\n").splitlines()]
        if self.next_step:
            lines.append(f"  next:  {self.next_step}")
        return lines


class UsageError(FastfillError):
    """Bad input or a contradictory configuration: exit 2."""

    def __init__(self, what: str, *, where: str = "", next_step: str = "", detail: str = "") -> None:
        super().__init__(what, where=where, next_step=next_step, code=ExitCode.USAGE, detail=detail)


class NotReadyError(FastfillError):
    """The environment cannot do this yet (no network, no disk, no server): exit 4."""

    def __init__(self, what: str, *, where: str = "", next_step: str = "", detail: str = "") -> None:
        super().__init__(what, where=where, next_step=next_step, code=ExitCode.NOT_READY, detail=detail)


def refused(error: OSError) -> NotReadyError:
    """What the system refuses (a full disk, missing rights), where nobody has said it better."""
    return NotReadyError(
        f"the system refused: {error.strerror or error}",
        where=str(error.filename or ""),
        next_step="look at the space on the disk and the rights of what is named, then run it again",
    )
