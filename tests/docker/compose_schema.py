#!/usr/bin/env python3
"""Holds compose files to the Compose specification's schema, the copy that check-jsonschema ships.

    compose_schema.py FILE...

Compose's own tags (!reset, !override) say how a list is merged; the schema is about what is merged.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path


def check(file: Path) -> str:
    """What is wrong with a file; "" for nothing."""
    text = re.sub(r"!(reset|override) ", "", file.read_text(encoding="utf-8"))
    tool = [str(Path(sys.executable).parent / "check-jsonschema"), "--builtin-schema", "vendor.compose-spec"]
    argv = [*tool, "--default-filetype", "yaml", "--color", "never", "-"]
    done = subprocess.run(argv, input=text, capture_output=True, text=True)
    return "" if done.returncode == 0 else f"{file}: {done.stdout}{done.stderr}"


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("compose_schema.py: no files are given")
    found = [said for said in map(check, map(Path, sys.argv[1:])) if said]
    sys.exit("\n".join(found) or 0)
