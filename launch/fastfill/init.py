"""``fastfill init``: write ``.env`` from what this host has, so that ``docker compose up`` is the next command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fastfill import output
from fastfill.errors import NotReadyError, UsageError


def init(
    instances: Annotated[int, typer.Option(min=1, help="Servers on this host, each with GPUs of its own.")] = 1,
    tp: Annotated[
        int | None, typer.Option(min=1, help="GPUs a server. Default: what fits.", show_default=False)
    ] = None,
    gpus: Annotated[
        list[str] | None, typer.Option(help="GPUs of a server, as 0,1,2,3; once a server.", show_default=False)
    ] = None,
    models: Annotated[Path, typer.Option(help="The folder on this host that holds the checkpoints.")] = Path(
        "/srv/models"
    ),
    port: Annotated[int, typer.Option(min=1, max=65535, help="Of the first server; the others follow.")] = 30000,
    bind: Annotated[str, typer.Option(help="The address that the port is open on.")] = "127.0.0.1",
    into: Annotated[
        Path | None, typer.Option(help="Where to write. Default: the checkout.", show_default=False)
    ] = None,
    root: Annotated[
        Path | None, typer.Option(help="A recorded host instead of this one (fastfill preflight --record).")
    ] = None,
    stack: Annotated[str, typer.Option(help="A stack by name.")] = "sglang-0.5.16",
    offline: Annotated[
        bool, typer.Option("--offline", help="Do not resolve what the stack leaves unverified.")
    ] = False,
) -> None:
    """Write .env (and, for several servers, compose.instances.yaml) from what this host has, and say why.

    What somebody set in .env stays. On a host with a network, what the stack leaves unverified is resolved first.
    """
    from fastfill import data, pins
    from fastfill.host import settings
    from fastfill.host.facts import Wanted, read
    from fastfill.host.machine import LiveMachine, Machine, RecordedMachine
    from fastfill.pinning import stack as stacks

    place = into or data.checkout()
    if place is None:
        raise UsageError(
            "fastfill was installed from a wheel, and so has no checkout to write to",
            where="--into",
            next_step="name the folder of compose.yaml with --into",
        )
    machine: Machine = LiveMachine() if root is None else RecordedMachine(root)
    facts = read(machine, Wanted(port=port, disk=str(models)))
    chosen = settings.choose(facts, instances, tp, [_indices(words) for words in gpus or []], port)
    if not offline:
        try:
            pins.resolve(stack)
        except NotReadyError as error:
            output.talk("\n".join(error.lines()))
            output.talk("init: going on; a build stops until this is resolved")
    pinned = stacks.load(stack)
    cards = [machine.node(f"/dev/dri/{name}") for name in machine.names("/dev/dri") if name.startswith("card")]
    video = next((card.gid for card in cards if card is not None), None)
    model = pinned.model.repository.rpartition("/")[2]
    lines = settings.values(facts, chosen[0], video_gid=video, models=str(models), model=model, bind=bind)
    file = place / ".env"
    before = file.read_text(encoding="utf-8") if file.exists() else ""
    text, kept = settings.merge(before, lines)
    file.write_text(text, encoding="utf-8")
    for line in lines:
        state = "  (kept yours)" if line.name in kept and f"{line.name}={line.value}" not in before.splitlines() else ""
        output.data(f"{line.name}={line.value}{state}\n    {line.why}")
    output.talk(f"init: wrote {file}")
    command = "docker compose up --wait"
    if len(chosen) > 1:
        target = place / settings.INSTANCES_FILE
        target.write_text(settings.compose(chosen, pinned.kernel_digest()), encoding="utf-8")
        output.talk(f"init: wrote {target}")
        for number, instance in enumerate(chosen):
            output.data(f"server-{number}: GPUs {','.join(map(str, instance.gpus))}, port {instance.port}")
        command = f"docker compose -f {settings.INSTANCES_FILE} up --wait"
    output.talk(f"next: put the checkpoint in {models}/{model}, then {command}")


def _indices(words: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in words.split(","))
    except ValueError:
        raise UsageError("these are no GPUs", where=f"--gpus {words}", next_step="write 0,1,2,3") from None
