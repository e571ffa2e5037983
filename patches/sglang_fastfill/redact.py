"""Keeps SGLang's API keys out of its log and out of /server_info.

SGLang 0.5.16 prints both keys in the ``server_args=`` line at its start, and returns both from /server_info to anybody
who holds the ordinary one. From 0.5.19 on the line is a dictionary's text; from 0.5.20 on the page repeats the command
line, into which SGLang has merged its configuration file.
"""

from __future__ import annotations

import copy
import logging
import re
from typing import Any

SECRETS = ("api_key", "admin_api_key", "ssl_keyfile_password")
REDACTED = "(redacted)"
PAGES = ("/server_info", "/get_server_info")
LOGGER = "sglang.srt.entrypoints.engine"
"""Who writes the ``server_args=`` line."""
_COMMAND = "launch_command"
_NAMES = "|".join(SECRETS)
_IN_TEXT = re.compile(rf"""(['"](?:{_NAMES})['"]: )('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""")
_IN_COMMAND = re.compile(rf"""(--(?:{_NAMES.replace("_", "-")})(?:=|\s+))(?:'[^']*'|"[^"]*"|\S)+""")


def without_secrets(value: Any) -> Any:
    """A JSON value with every secret that is set replaced, at any depth."""
    if isinstance(value, dict):
        return {key: _hidden(key, item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_secrets(item) for item in value]
    return value


def _hidden(key: Any, item: Any) -> Any:
    if key in SECRETS and item is not None:
        return REDACTED
    if key == _COMMAND and isinstance(item, str):
        return _IN_COMMAND.sub(rf"\g<1>{REDACTED}", item)
    return without_secrets(item)


class _Filter(logging.Filter):
    """Takes secrets out of a record that holds a dictionary's text."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if any(name in text for name in SECRETS):
            record.msg, record.args = _IN_TEXT.sub(rf"\g<1>'{REDACTED}'", text), ()
        return True


def hide_in_log() -> None:
    """Let the line with SGLang's arguments show no secret, whatever text SGLang makes of them."""
    log = logging.getLogger(LOGGER)
    if not any(isinstance(one, _Filter) for one in log.filters):
        log.addFilter(_Filter())


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
