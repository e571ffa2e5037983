"""Takes secrets out of what a server said of itself, before it is written down."""

from __future__ import annotations

import re
from typing import Any

REDACTED = "(redacted)"
_SECRET = re.compile(r"api_?key|password|passwd|secret|credential|auth|private|(^|_)token$|hf_token", re.IGNORECASE)


def redacted(value: Any, known: tuple[str | None, ...] = ()) -> Any:
    """A JSON value without secrets, at any depth.

    Args:
        value: The value.
        known: Secrets that are replaced wherever they stand.
    """
    secrets = tuple(secret for secret in known if secret)
    if isinstance(value, dict):
        return {
            key: REDACTED if _SECRET.search(str(key)) and item not in (None, False, True, "") else redacted(item, known)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [redacted(item, known) for item in value]
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, REDACTED)
    return value
