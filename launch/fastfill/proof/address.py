"""The server's address and key as the operator gives them: checked before anything is sent."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from fastfill.errors import UsageError

KEY_VARIABLE = "FASTFILL_API_KEY"
KEY_FILE_VARIABLE = "FASTFILL_API_KEY_FILE"
ADMIN_KEY_VARIABLE = "FASTFILL_ADMIN_API_KEY"
ADMIN_KEY_FILE_VARIABLE = "FASTFILL_ADMIN_API_KEY_FILE"
_KEY_STEP = "put the server's key, and nothing else, in a file that you may read, and give --api-key-file FILE"


def base_url(url: str) -> str:
    """The URL without a trailing slash.

    Raises:
        UsageError: No scheme or host, a scheme other than http and https, or a password inside it.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
        # As the name is looked up: labels of 1 to 63 characters.
        (parts.hostname or "").encode("idna")
    except ValueError as error:
        raise UsageError(f"not a URL: {error}", where=url, next_step="--url http://HOST:PORT") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        suggestion = f"http://{url}" if "://" not in url and url else "http://HOST:PORT"
        raise UsageError("the URL needs http:// or https:// and a host", where=url, next_step=f"--url {suggestion}")
    if parts.username or parts.password:
        raise UsageError(
            "the URL carries a user name or password, which would show in process lists and logs",
            where=f"{parts.scheme}://…@{parts.hostname}" + (f":{port}" if port else ""),
            next_step="put the server's key in a file and give --api-key-file FILE",
        )
    if parts.query or parts.fragment:
        raise UsageError("the URL has a query or fragment", where=url, next_step="--url http://HOST:PORT")
    return url.rstrip("/")


def without_keys(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment for a child that is given its keys outright: what an inherited variable names would win there."""
    names = (KEY_VARIABLE, KEY_FILE_VARIABLE, ADMIN_KEY_VARIABLE, ADMIN_KEY_FILE_VARIABLE)
    return {name: value for name, value in environ.items() if name not in names}


def _has_content(file: str) -> bool:
    """An empty file that only the environment names is no key: compose mounts one where none is wanted."""
    try:
        return bool(Path(file).read_bytes().strip())
    except OSError:
        return True


def api_key(file: Path | None) -> str | None:
    """The server's key, from the file, else from the file that FASTFILL_API_KEY_FILE names, else from FASTFILL_API_KEY,
    else none; never from the command line.

    Raises:
        UsageError: The file cannot be read, is empty, or holds what cannot be a header.
    """
    return _key(file, KEY_FILE_VARIABLE, KEY_VARIABLE)


def admin_key(file: Path | None) -> str | None:
    """The server's admin key, found as :func:`api_key` finds the other, with FASTFILL_ADMIN_API_KEY in the names.

    Raises:
        UsageError: The file cannot be read, is empty, or holds what cannot be a header.
    """
    return _key(file, ADMIN_KEY_FILE_VARIABLE, ADMIN_KEY_VARIABLE)


def _key(file: Path | None, file_variable: str, variable: str) -> str | None:
    named = os.environ.get(file_variable)
    if file is None and named and _has_content(named):
        file = Path(named)
    if file is None:
        key, where = os.environ.get(variable, "").strip(), variable
        if not key:
            return None
    else:
        where = str(file)
        try:
            key = file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read the API key: {error}", where=where, next_step=_KEY_STEP) from error
        if not key:
            raise UsageError("the API key file is empty", where=where, next_step=_KEY_STEP)
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise UsageError("the API key is not one line of printable ASCII", where=where, next_step=_KEY_STEP)
    return key
