"""Write each role's README from its argument_specs.yml and defaults; ``--check`` fails where one is stale."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml

ROLES = Path(__file__).parent / "roles"


def table(role: Path) -> str:
    """One role's README."""
    spec = yaml.safe_load((role / "meta/argument_specs.yml").read_text(encoding="utf-8"))["argument_specs"]["main"]
    defaults = yaml.safe_load((role / "defaults/main.yml").read_text(encoding="utf-8")) or {}
    lines = [f"# {role.name}", "", f"{spec['short_description']}.", ""]
    lines += [*spec.get("description", []), ""] if spec.get("description") else []
    lines += ["| variable | type | default | |", "|---|---|---|---|"]
    for name, option in spec.get("options", {}).items():
        lines += _rows(name, option, defaults.get(name))
    made = "Made from meta/argument_specs.yml and defaults/main.yml by `ansible/role_tables.py`; edit these."
    return "\n".join([*lines, "", made]) + "\n"


def _rows(name: str, option: dict[str, Any], default: object) -> list[str]:
    kind = str(option["type"]) + (f" of {option['elements']}" if "elements" in option else "")
    shown = "required" if option.get("required") else f"`{_short(default)}`" if default is not None else ""
    rows = [f"| `{name}` | {kind} | {shown} | {str(option['description']).strip()} |"]
    for inner, one in option.get("options", {}).items():
        rows += _rows(f"{name}.{inner}", one, None)
    return rows


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text.replace("|", "\\|") or '""'


def main() -> int:
    """Write the READMEs, or compare them."""
    check = sys.argv[1:] == ["--check"]
    stale = []
    for role in sorted(path.parents[1] for path in ROLES.glob("*/meta/argument_specs.yml")):
        readme, wanted = role / "README.md", table(role)
        if not readme.is_file() or readme.read_text(encoding="utf-8") != wanted:
            stale.append(str(readme))
            if not check:
                readme.write_text(wanted, encoding="utf-8")
    if check and stale:
        sys.stderr.write(f"stale: {', '.join(stale)}\n  next:  python ansible/role_tables.py\n")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
