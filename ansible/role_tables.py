"""Write what is made from the roles: each README, and compose's alert rules. ``--check`` fails where one is stale."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jinja2
import yaml

ROLES = Path(__file__).parent / "roles"
RULES = Path(__file__).parents[1] / "docker/monitoring/fastfill.rules.yml"


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


def monitoring(name: str, **settings: object) -> str:
    """A template of the role monitoring as Ansible renders it: ``settings`` over the role's defaults."""
    role = ROLES / "monitoring"
    defaults = yaml.safe_load((role / "defaults/main.yml").read_text(encoding="utf-8"))
    text = (role / f"templates/{name}.j2").read_text(encoding="utf-8")
    ansible = jinja2.Environment(trim_blocks=True, keep_trailing_newline=True, autoescape=False)  # noqa: S701
    return ansible.from_string(text).render({**defaults, **settings})


def made() -> dict[Path, str]:
    """Every file that is made, and its content. No timer proves the server of a compose file."""
    roles = sorted(path.parents[1] for path in ROLES.glob("*/meta/argument_specs.yml"))
    return {role / "README.md": table(role) for role in roles} | {
        RULES: monitoring("fastfill.rules.yml", monitoring_proofs=False)
    }


def main() -> int:
    """Write them, or compare them."""
    check = sys.argv[1:] == ["--check"]
    stale = []
    for file, wanted in made().items():
        if not file.is_file() or file.read_text(encoding="utf-8") != wanted:
            stale.append(str(file))
            if not check:
                file.write_text(wanted, encoding="utf-8")
    if check and stale:
        sys.stderr.write(f"stale: {', '.join(stale)}\n  next:  python ansible/role_tables.py\n")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
