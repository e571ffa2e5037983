"""``fastfill selfcheck``: the kernel on this device against an fp32 reference, inside the server's environment."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from fastfill import output
from fastfill.errors import ExitCode, NotReadyError


def selfcheck(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Run the kernel on this GPU against an fp32 reference, on shapes that have gone wrong before.

    Run it where the server runs: inside its container, or in the lab's Python. Exit 0 when every case is right, 1 when
    one is wrong, 4 where there is no aiter or no torch.

    Example: fastfill lab python -- -m fastfill selfcheck
    """
    try:
        import torch

        from sglang_fastfill import selfcheck as checks
    except ImportError as error:
        raise NotReadyError(
            f"selfcheck needs the server's environment: {error}",
            where=sys.executable,
            next_step="run it inside the container, or: fastfill lab python -- -m fastfill selfcheck",
        ) from None
    device = "cuda" if torch.cuda.is_available() else "cpu"
    begun = time.monotonic()
    try:
        results = checks.run(device)
    except ImportError as error:
        raise NotReadyError(
            f"aiter cannot be imported: {error}",
            where=sys.executable,
            next_step="fastfill kernel identify PATH says what is installed",
        ) from None
    seconds = time.monotonic() - begun
    ok = all(result.ok for result in results)
    kinds = sorted({result.kind for result in results if result.kind})
    if as_json:
        output.document(
            {
                "schema": "fastfill.selfcheck/1",
                "ok": ok,
                "kinds": kinds,
                "device": torch.cuda.get_device_name() if device == "cuda" else "cpu (emulated kernels)",
                "seconds": round(seconds, 1),
                # JSON has no infinity: a case that raised or answered NaN has no error to give.
                "cases": [
                    {**result._asdict(), "error": result.error if result.error < float("inf") else None}
                    for result in results
                ],
            }
        )
    else:
        for result in results:
            line = f"{'ok  ' if result.ok else 'FAIL'}  {result.name}"
            output.data(f"{line}: {result.kind}: {result.detail}" if not result.ok else f"{line}: {result.error:.4f}")
        verdict = "right" if ok else f"WRONG: {', '.join(kinds)}"
        output.data(f"{verdict}: {sum(r.ok for r in results)} of {len(results)} cases on {device} in {seconds:.1f} s")
        if not ok:
            output.talk("next: fastfill kernel identify PATH; serve by the fallback meanwhile: fastfill path off")
    raise typer.Exit(int(ExitCode.OK if ok else ExitCode.CHECK_FAILED))
