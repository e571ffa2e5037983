"""Runs the command line through the same ``main()`` as a user does, in this process: exit code, stdout, stderr."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import NamedTuple
from unittest import mock

from fastfill.__main__ import main


class Ran(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


def fastfill(*arguments: str, env: dict[str, str] | None = None) -> Ran:
    """``fastfill ARGUMENTS``, with FASTFILL_* and the width of the caller's terminal taken out of the environment."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("FASTFILL_", "COLUMNS"))}
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.dict(os.environ, {**clean, **(env or {})}, clear=True),
        mock.patch.object(sys, "argv", ["fastfill", *arguments]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
            code: object = 0
        except SystemExit as left:
            code = left.code
    return Ran(code if isinstance(code, int) else int(code is not None), out.getvalue(), err.getvalue())
