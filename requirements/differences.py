"""Keep of a lock only what another one does not hold in the same version: ``differences.py BASE LOCK``.

The lab's environments of later SGLang releases lie on the first one's: their locks name what is on top.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

# With its marker: what one lock wants on Windows only may be wanted everywhere by the other.
_ENTRY = re.compile(r"^(?P<pin>[^\s#]+==[^\\\n]*?) *(?:\\\n(?: +.*\n?)*|\n|$)", re.MULTILINE)


def entries(text: str) -> dict[str, str]:
    """Each pin of a lock with its lines."""
    return {match["pin"]: match[0] for match in _ENTRY.finditer(text)}


def main() -> None:
    """See the module's text."""
    base, lock = map(Path, sys.argv[1:3])
    known = entries(base.read_text(encoding="utf-8"))
    wanted = entries(lock.read_text(encoding="utf-8"))
    lock.write_text("".join(text for pin, text in wanted.items() if pin not in known), encoding="utf-8")


if __name__ == "__main__":
    main()
