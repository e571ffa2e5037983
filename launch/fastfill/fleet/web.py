"""HTTP to servers and routers with nothing but the standard library: this runs on hosts without httpx."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from typing import Any, NamedTuple

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""The cluster's own addresses never go through a proxy."""


SLOW = -1
"""The status of an answer that did not come in time from somebody who had taken the connection."""
UNTRUSTED = -2
"""The status where somebody is there whose certificate this host does not trust, or who does not speak TLS."""


class Reply(NamedTuple):
    """Status 0: nobody is there, and ``text`` says why; or ``SLOW``, or ``UNTRUSTED``."""

    status: int
    text: str

    @property
    def value(self) -> Any:
        """The JSON, None where it is none."""
        try:
            return json.loads(self.text)
        except ValueError:
            return None


def ask(url: str, *, method: str = "GET", body: Any = None, key: str = "", timeout: float = 5.0) -> Reply:
    """One request; never raises for what the other side does."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    data = None
    if body is not None:
        data = json.dumps(body).encode()
        headers["Content-Type"] = "application/json"
    request = urllib.request.Request(url, data=data, method=method, headers=headers)  # noqa: S310 - http(s), checked
    try:
        with _OPENER.open(request, timeout=timeout) as answer:
            return Reply(answer.status, answer.read().decode("utf-8", "replace"))
    except urllib.error.HTTPError as error:
        return Reply(error.code, error.read().decode("utf-8", "replace"))
    except TimeoutError as error:
        # Not from the connection: that one's comes wrapped.
        return Reply(SLOW, str(error))
    except urllib.error.URLError as error:
        slow = isinstance(error.reason, TimeoutError) and "handshake" in str(error.reason)
        untrusted = isinstance(error.reason, ssl.SSLError)
        return Reply(SLOW if slow else UNTRUSTED if untrusted else 0, str(error.reason))
    except (OSError, ValueError) as error:
        return Reply(0, str(error))
