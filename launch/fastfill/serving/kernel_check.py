"""Runs ``fastfill selfcheck`` before the server is started, where serve was told to."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping

from fastfill import output
from fastfill.errors import ExitCode, FastfillError, NotReadyError

SECONDS = 600.0
"""The cases take under a minute; a cold aiter compiles its module first."""
_NEXT = "fastfill kernel identify PATH says which kernel it is; to serve by the fallback meanwhile: --profile off"


def require_right_kernel(python: str, env: Mapping[str, str]) -> None:
    """Check the kernel in a process of its own, which gives its GPU memory back before the server starts.

    Args:
        python: The interpreter that will serve.
        env: The whole environment that the server will have: GPU_ARCHS and the like decide which kernel runs.

    Raises:
        FastfillError: A case is wrong; the failed ones are shown.
        NotReadyError: The check could not be run.
    """
    output.talk("selfcheck: the kernel against an fp32 reference, before the server is started")
    argv = [python, "-m", "fastfill", "selfcheck"]
    try:
        done = subprocess.run(argv, env=dict(env), capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise NotReadyError(
            f"selfcheck did not end within {SECONDS:.0f} s; the server was not started",
            where=" ".join(argv),
            next_step="run it by hand to see where it stands",
        ) from None
    lines = done.stdout.splitlines()
    if done.returncode == ExitCode.OK:
        output.talk(f"selfcheck: {lines[-1]}")
        return
    failed = [line for line in lines if line.startswith("FAIL")]
    if done.returncode == ExitCode.CHECK_FAILED and failed:
        raise FastfillError(
            f"the kernel fails selfcheck, and the server was not started: {lines[-1]}",
            where=" ".join(argv),
            detail="\n".join(failed),
            next_step=_NEXT,
        )
    raise NotReadyError(
        "selfcheck could not be run; the server was not started",
        where=" ".join(argv),
        detail="\n".join([*lines, *done.stderr.splitlines()][-12:]),
        next_step="mend what it names, or start without --selfcheck",
    )
