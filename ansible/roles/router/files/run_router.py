"""Start sglang-router from a file that only root reads: keys on a command line would show in the process list."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from sglang_router.launch_router import launch_router, parse_router_args


def main() -> None:
    """Read the arguments from the unit's credential and serve until it is stopped."""
    place = Path(os.environ["CREDENTIALS_DIRECTORY"]) / "router.json"
    settings = json.loads(place.read_text(encoding="utf-8"))
    words = [str(word) for word in settings["arguments"]]
    if settings.get("control_key"):
        words += ["--control-plane-api-keys", f"fleet:fleet:admin:{settings['control_key']}"]
    launch_router(parse_router_args(words))


if __name__ == "__main__":
    sys.exit(main())
