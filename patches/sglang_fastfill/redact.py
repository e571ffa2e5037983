"""Keeps SGLang's API keys out of its log and out of /server_info.

SGLang 0.5.16 prints both keys in the ``server_args=`` line at its start, and returns both from /server_info to anybody
who holds the ordinary one.
"""

from __future__ import annotations

import copy
from typing import Any

SECRETS = ("api_key", "admin_api_key", "ssl_keyfile_password")
REDACTED = "(redacted)"
PAGES = ("/server_info", "/get_server_info")


def without_secrets(value: Any) -> Any:
    """A JSON value with every secret that is set replaced, at any depth."""
    if isinstance(value, dict):
        return {
            key: REDACTED if key in SECRETS and item is not None else without_secrets(item)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [without_secrets(item) for item in value]
    return value


def hide_in_text(server_args: type[Any]) -> None:
    """Make the text of SGLang's ServerArgs show no secret; the attributes stay."""
    shown: Any = server_args.__repr__
    if getattr(shown, "hides_secrets", False):
        return

    def hidden(self: Any) -> str:
        twin = copy.copy(self)
        for name in SECRETS:
            if getattr(twin, name, None) is not None:
                # Past whatever ServerArgs does when an attribute is set.
                object.__setattr__(twin, name, REDACTED)
        return str(shown(twin))

    hidden.hides_secrets = True  # type: ignore[attr-defined]
    server_args.__repr__ = hidden  # type: ignore[assignment]


def hide_in_pages(app: Any) -> None:
    """Replace the pages that return SGLang's arguments by the same without secrets."""
    for route in list(app.router.routes):
        if getattr(route, "path", "") in PAGES:
            app.router.routes.remove(route)
            app.add_api_route(route.path, _around(route.endpoint), methods=sorted(route.methods))


def _around(endpoint: Any) -> Any:
    async def page() -> Any:
        return without_secrets(await endpoint())

    return page
