"""The kill switch as a launch finds it: it is kept over a restart, so whoever starts the server should hear of it."""

from __future__ import annotations

import json
from pathlib import Path

from fastfill.serving.checks import Finding
from sglang_fastfill.conditions import BY_ID


def thrown(state_dir: Path) -> Finding | None:
    """A warning when the switch is off in this state folder (a file that cannot be understood counts as off)."""
    file = state_dir / "path.json"
    try:
        switch = json.loads(file.read_text(encoding="utf-8"))
        if switch["path"] == "on":
            return None
        how = f"by {switch.get('who') or 'someone'} at {switch.get('when') or 'some time'}: {switch.get('why') or '-'}"
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        how = f"by a file that cannot be understood ({type(error).__name__})"
    return Finding("operator_off", "warn", f"the kill switch is thrown {how} ({file})", BY_ID["operator_off"].fix)
