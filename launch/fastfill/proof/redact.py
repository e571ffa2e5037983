"""Takes secrets out of what a server said of itself, before it is written down."""

from __future__ import annotations

import re
from typing import Any

from sglang_fastfill.redact import REDACTED, without_secrets

_SECRET = re.compile(r"api_?key|password|passwd|secret|credential|auth|private|(^|_)token$|hf_token", re.IGNORECASE)


def redacted(value: Any, known: tuple[str | None, ...] = ()) -> Any:
    """A JSON value without secrets, at any depth.

    Args:
        value: The value.
        known: Secrets that are replaced wherever they stand.
    """
    # A server without our plugin repeats its command line, keys and all.
    return _redacted(without_secrets(value), tuple(secret for secret in known if secret))


def _redacted(value: Any, secrets: tuple[str, ...]) -> Any:
    if isinstance(value, dict):
        return {
            key: REDACTED
            if _SECRET.search(str(key)) and item not in (None, False, True, "")
            else _redacted(item, secrets)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_redacted(item, secrets) for item in value]
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, REDACTED)
    return value
