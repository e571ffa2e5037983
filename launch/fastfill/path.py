"""``fastfill path``: the kill switch, which turns the fast path off and on without reloading the model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fastfill import output

if TYPE_CHECKING:
    from fastfill.proof.wire import Status

app = typer.Typer(help="Turn the fast path off or on while the server runs, or ask.", no_args_is_help=True)

Url = Annotated[str, typer.Option(envvar="FASTFILL_URL", help="The server: http(s)://HOST:PORT, not a router.")]
Who = Annotated[str | None, typer.Option(help="Who does it, for the audit log [user@host].")]
Why = Annotated[str, typer.Option(help="Why, for the audit log and for whoever asks later.")]
Key = Annotated[Path | None, typer.Option("--api-key-file", help="File with the API key; or set FASTFILL_API_KEY.")]
Admin = Annotated[
    Path | None,
    typer.Option("--admin-api-key-file", help="File with the admin key, where the server has one: it alone may turn."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document to stdout.")]


def _turning(state: Literal["on", "off"]) -> Callable[..., None]:
    """The command that turns the switch to one side."""

    def turn(
        url: Url,
        who: Who = None,
        why: Why = "",
        api_key_file: Key = None,
        admin_api_key_file: Admin = None,
        as_json: Json = False,
    ) -> None:
        from fastfill.proof.address import admin_key, api_key
        from fastfill.proof.server import Server
        from fastfill.proof.transport import Transport
        from fastfill.proof.turning import turn as order

        admin = admin_key(admin_api_key_file)
        with Transport(url, key=api_key(api_key_file)) as transport:
            server = Server(transport)
            server.facts()
            found = order(server, state, who=who or caller(), why=why, admin_key=admin)
        _show(server.url, found, as_json)
        output.talk(
            "takes effect on every rank at its next forward pass; see it with: fastfill prove --url " + server.url
        )

    return turn


app.command(
    "off",
    help="""Send every prefill to the fallback from the next forward pass on; kept over a restart.

    Example: fastfill path off --url http://localhost:30000 --why "wrong answers, ticket 4711"
    """,
)(_turning("off"))
app.command(
    "on",
    help="""Let the fast path fire again from the next forward pass on.

    Example: fastfill path on --url http://localhost:30000 --why "fixed"
    """,
)(_turning("on"))


@app.command("status")
def status(url: Url, api_key_file: Key = None, as_json: Json = False) -> None:
    """Print whether the path is on, and who turned it, when and why."""
    from fastfill.proof.address import api_key
    from fastfill.proof.server import Server, no_plugin
    from fastfill.proof.transport import Transport

    with Transport(url, key=api_key(api_key_file)) as transport:
        server = Server(transport)
        server.facts()
        found = server.status()
        if found is None:
            raise no_plugin(server.url)
    _show(server.url, found, as_json)


def _show(url: str, found: Status, as_json: bool) -> None:
    path = found.path
    if as_json:
        output.document({"schema": "fastfill.path/1", "url": url, **path.model_dump()})
        return
    output.data(f"path: {path.path}")
    for name, value in (("who", path.who), ("when", path.when), ("why", path.why)):
        if value:
            output.data(f"{name + ':':<6}{value}")


def caller() -> str:
    """``user@host`` of whoever runs this, ``unknown`` where the system does not say."""
    import getpass
    import socket

    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):
        user = "unknown"
    return f"{user}@{socket.gethostname() or 'unknown'}"
