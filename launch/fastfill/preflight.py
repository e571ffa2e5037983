"""``fastfill preflight``: is this host ready to serve, and what to type where it is not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from fastfill.errors import ExitCode, UsageError

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


def preflight(
    root: Annotated[
        Path | None,
        typer.Option("--root", help="Judge a recorded host: a folder with its sys, proc, dev and host.json."),
    ] = None,
    record: Annotated[
        Path | None, typer.Option("--record", help="Also write what was read to this new folder.")
    ] = None,
    gpus: Annotated[int, typer.Option("--gpus", min=1, help="GPUs needed at least.")] = 1,
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="The server's port.")] = 30000,
    model: Annotated[str, typer.Option("--model", help="The checkpoint's folder: is it complete?")] = "",
    model_size: Annotated[
        str, typer.Option("--model-size", help="Its size where it is yet to come: 230GB, 214GiB.")
    ] = "",
    disk: Annotated[str, typer.Option("--disk", help="Where the model and the caches will lie.")] = "/",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Check a host before the rollout: GPUs, driver, devices, kernel settings, memory, disk, model, port, Docker.

    Exit 0 when nothing fails, 1 when a check fails, 4 when there is no AMD GPU.
    """
    from fastfill import output
    from fastfill.host.checks import group_add, judge
    from fastfill.host.facts import Wanted, read
    from fastfill.host.machine import LiveMachine, Machine, RecordedMachine, Recorder

    if root is not None and not root.is_dir():
        raise UsageError("there is no such recorded host", where=str(root), next_step="fastfill preflight --record DIR")
    if record is not None and record.exists():
        raise UsageError("the folder to record to exists already", where=str(record), next_step="name a new folder")
    folder = str(Path(model).absolute()) if model and root is None else model
    wanted = Wanted(gpus, port, disk, folder, _bytes(model_size))
    machine: Machine = LiveMachine() if root is None else RecordedMachine(root)
    recorder = Recorder(machine, record) if record is not None else None
    facts = read(recorder or machine, wanted)
    if recorder is not None:
        recorder.finish()
    checks, skipped = judge(facts, wanted)
    failed = any(check.status == "fail" for check in checks)
    verdict = "no_gpu" if not facts.gpus else "not_ready" if failed else "ready"
    if json:
        from fastfill.host.document import Preflight

        document = Preflight.model_validate(
            {
                "schema": "fastfill.preflight/1",
                "verdict": verdict,
                "gpus": len(facts.gpus),
                "group_add": group_add(facts),
                "checks": [check._asdict() for check in checks],
                "not_checked": [item._asdict() for item in skipped],
            }
        )
        output.document(document.model_dump(by_alias=True))
    else:
        for check in checks:
            output.data(f"{check.status:4}  {check.id:15}  {check.value}")
            if check.fix:
                output.data(f"{'':23}fix: {check.fix}")
        for item in skipped:
            output.data(f"-     {item.id:15}  not checked: {item.why}")
        output.data({"no_gpu": "no AMD GPU here", "not_ready": "not ready", "ready": "ready"}[verdict])
    if verdict != "ready":
        raise typer.Exit(int(ExitCode.NOT_READY if verdict == "no_gpu" else ExitCode.CHECK_FAILED))


def _bytes(text: str) -> int | None:
    """``230GB``, ``214GiB`` or a plain number of bytes."""
    if not text:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?I?)B?", text.strip().upper())
    if match is None or match[2] not in _UNITS:
        raise UsageError("this is not a size", where=f"--model-size {text}", next_step="write 230GB or 214GiB")
    return int(float(match[1]) * _UNITS[match[2]])
