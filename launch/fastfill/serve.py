"""``fastfill serve``: a launch profile, checked, becomes the command that starts SGLang."""

from __future__ import annotations

import errno
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastfill import environment, output
from fastfill.errors import NotReadyError, UsageError

if TYPE_CHECKING:
    from fastfill.serving.checks import Installed
    from fastfill.serving.launch import Launch


def serve(
    ctx: typer.Context,
    profile: Annotated[str, typer.Option(help="A shipped profile (see fastfill profiles), or the path of your own.")],
    model: Annotated[str | None, typer.Option(help="A folder or a Hugging Face id.", show_default=False)] = None,
    tp: Annotated[int | None, typer.Option(min=1, help="GPUs to split the model over.", show_default=False)] = None,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Default: 30000.", show_default=False)] = None,
    host: Annotated[str | None, typer.Option(help="Default: 127.0.0.1.", show_default=False)] = None,
    longest_prompt: Annotated[
        int | None,
        typer.Option(
            min=1, help="Tokens of the longest prompt with its answer. Default: the profile's.", show_default=False
        ),
    ] = None,
    env: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE for the server, instead of the profile's.", show_default=False)
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(help="Start although this finding (its id, or all) refuses to.", show_default=False),
    ] = None,
    state_dir: Annotated[
        Path | None,
        typer.Option(help="Kill switch, audit log and passes. Default: a folder for the port.", show_default=False),
    ] = None,
    api_key_file: Annotated[
        Path | None,
        typer.Option(envvar="FASTFILL_API_KEY_FILE", help="File with the key that clients send.", show_default=False),
    ] = None,
    admin_api_key_file: Annotated[
        Path | None,
        typer.Option(envvar="FASTFILL_ADMIN_API_KEY_FILE", help="File with the key for SGLang's admin pages."),
    ] = None,
    selfcheck: Annotated[
        bool | None,
        typer.Option(
            "--selfcheck/--no-selfcheck",
            help="Refuse to start where fastfill selfcheck fails. Default: the profile's.",
            show_default=False,
        ),
    ] = None,
    print_: Annotated[bool, typer.Option("--print", help="Print the command instead of running it.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the launch as one JSON document; runs nothing.")] = False,
) -> None:
    """Start SGLang with a profile. Words after -- go to SGLang, and win over the profile's.

    Example: fastfill serve --profile long-context --model ORG/NAME --tp 4 -- --reasoning-parser qwen3
    """
    from fastfill.serving import keys
    from fastfill.serving import profile as profiles
    from fastfill.serving.launch import Request, prepare
    from fastfill.unheard import Rule, given, refuse

    refuse(
        given(ctx), [Rule("--print", json, "--json prints the launch, and runs nothing", "leave one of the two out")]
    )
    wanted = {"model-path": model, "host": host, "port": port, "tp-size": tp}
    key_files = {"api-key": api_key_file, "admin-api-key": admin_api_key_file}
    request = Request(
        profile=profiles.load(profile),
        options={name: str(value) for name, value in wanted.items() if value is not None},
        extra=list(ctx.args),
        env=environment.parse(env),
        longest_prompt=longest_prompt,
        state_dir=state_dir,
        allow=allow or [],
        keys=keys.read(key_files, [name for name in key_files if f"--{name}-file" in given(ctx)]),
    )
    launch = prepare(request, environ=dict(os.environ), python=sys.executable, installed=_installed())
    _say(launch)
    if json:
        from fastfill.serving.document import describe

        output.document(describe(request.profile.name, launch))
    _refuse(launch, request.profile.name, documented=json)
    if json:
        return
    if print_:
        output.data(launch.command.text())
    else:
        checked = request.profile.fastfill.selfcheck if selfcheck is None else selfcheck
        _run(launch, allowed=request.allow, secrets=request.keys, checked=checked)


def _installed() -> Installed:
    from fastfill.serving.installed import look

    return look()


def _say(launch: Launch) -> None:
    for note in launch.settings.notes:
        output.talk(f"setting: {note}")
    if launch.memory is not None:
        for line in launch.memory.table():
            output.talk(f"memory:  {line}")
    for finding in launch.findings:
        if finding.severity != "refuse":
            output.talk(f"{finding.severity}: [{finding.id}] {finding.what}; {finding.fix}")


def _refuse(launch: Launch, profile: str, *, documented: bool) -> None:
    refused = [finding for finding in launch.findings if finding.severity == "refuse"]
    if refused:
        ids = " ".join(f"--allow {id}" for id in dict.fromkeys(finding.id for finding in refused))
        error = UsageError(
            f"{len(refused)} setting(s) contradict what profile {profile} is for",
            where=", ".join(dict.fromkeys(finding.id for finding in refused)),
            detail="\n".join(f"[{finding.id}] {finding.what}\n  fix: {finding.fix}" for finding in refused),
            next_step=f"change them, use profile off, or start all the same with {ids}",
        )
        error.documented = documented
        raise error


def _run(launch: Launch, *, allowed: list[str], secrets: dict[str, str], checked: bool) -> None:
    from fastfill.serving import folder, keys
    from fastfill.serving.installed import require_patched
    from fastfill.serving.kernel_check import require_right_kernel

    require_patched(launch.settings, allowed)
    _port_is_free(launch.host, launch.port)
    environment = {**os.environ, **launch.command.env}
    if checked:
        require_right_kernel(launch.command.argv[0], environment)
    folder.ready(launch.state_dir)
    keys.write(launch.state_dir, secrets)
    output.talk(f"state:   {launch.state_dir}")
    output.talk(f"running: {launch.command.text()}")
    sys.stdout.flush()
    os.execvpe(launch.command.argv[0], launch.command.argv, environment)  # noqa: S606


def _port_is_free(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As the server itself binds: a connection of the last server that still lingers is no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                return
            raise NotReadyError(
                f"port {port} cannot be used ({error.strerror})",
                where=f"{host}:{port}",
                next_step=f"stop what listens there (ss -ltnp 'sport = :{port}'), or give another --port",
            ) from None
