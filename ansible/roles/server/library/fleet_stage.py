#!/usr/bin/python
"""Put releases on a host: each appears whole or not at all, and one that is there is left alone."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: fleet_stage
short_description: Put releases of servers on a host
description:
  - One call for all servers of a host. A release's folder appears in one step, once compose can read it.
options:
  root: {type: path, required: true, description: The fleet's folder.}
  servers:
    type: list
    elements: dict
    required: true
    description: name, release, files (relative path to content) and about (instance.json).
  secrets: {type: dict, default: {}, description: File name to key.}
  owner: {type: int, default: 0, description: The user id that reads the keys.}
  compose: {type: list, elements: str, required: true, description: The compose files in order.}
author: [fastfill]
"""
EXAMPLES = r"""
- fleet_stage:
    root: /var/lib/fastfill
    compose: [compose.yaml, compose.release.yaml]
    servers: [{name: main, release: a-1, files: {compose.yaml: "..."}, about: {url: "http://h:1", routers: []}}]
"""
RETURN = r""" # """

DEVICES = {"FASTFILL_VIDEO_GID": "/dev/dri/card0", "FASTFILL_RENDER_GID": "/dev/kfd"}


def groups() -> str:
    """The device files' groups as lines of .env: they differ from host to host. Nothing where there is no GPU."""
    try:
        return "".join(f"{name}={os.stat(place).st_gid}\n" for name, place in DEVICES.items())  # noqa: PTH116
    except OSError:
        return ""


def current(place: Path) -> str:
    """A file's content, empty where there is none."""
    try:
        return place.read_text(encoding="utf-8")
    except OSError:
        return ""


def put(place: Path, text: str, mode: int, owner: int = 0) -> None:
    """Replace a file in one step."""
    handle, part = tempfile.mkstemp(dir=place.parent, prefix=".part-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            os.fchmod(file.fileno(), mode)
            if os.geteuid() == 0:
                os.fchown(file.fileno(), owner, -1)
        Path(part).replace(place)
    except OSError:
        Path(part).unlink(missing_ok=True)
        raise


class Stage:
    """All servers of one host."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.root = Path(module.params["root"])
        self.diff: list[dict[str, str]] = []
        self.changed = False

    def server(self, one: dict[str, Any]) -> None:
        """One server: its folders, keys, release and description."""
        home = self.root / "instances" / one["name"]
        if not self.module.check_mode:
            for name in ("releases", "evidence"):
                (home / name).mkdir(parents=True, exist_ok=True)
            (home / "secrets").mkdir(mode=0o711, exist_ok=True)
        for name, key in self.module.params["secrets"].items():
            self.keep(home / "secrets" / name, key, 0o600, self.module.params["owner"], secret=True)
        self.release(home / "releases" / one["release"], one["files"])
        about = json.dumps(one["about"], indent=1, sort_keys=True) + "\n"
        self.keep(home / "instance.json", about, 0o644)

    def keep(self, place: Path, text: str, mode: int, owner: int = 0, *, secret: bool = False) -> None:
        """One file that is rewritten where it differs."""
        before = current(place)
        if before == text:
            return
        self.changed = True
        if not secret:
            self.diff.append({"before_header": str(place), "after_header": str(place), "before": before, "after": text})
        if not self.module.check_mode:
            put(place, text, mode, owner)

    def release(self, place: Path, files: dict[str, str]) -> None:
        """A release's folder: new, the same, or of the same name with other content, which is put right."""
        wanted = {**files, ".env": files.get(".env", "") + groups()}
        if all(current(place / name) == text for name, text in wanted.items()):
            return
        self.changed = True
        for name, text in wanted.items():
            if current(place / name) != text:
                head = str(place / name)
                self.diff.append(
                    {"before_header": head, "after_header": head, "before": current(place / name), "after": text}
                )
        if self.module.check_mode:
            return
        # Of a run that was killed, or that found the disk full.
        for left in place.parent.glob(".part-*"):
            shutil.rmtree(left)
        part = Path(tempfile.mkdtemp(dir=place.parent, prefix=".part-"))
        part.chmod(0o755)
        for name, text in wanted.items():
            (part / name).parent.mkdir(parents=True, exist_ok=True)
            put(part / name, text, 0o644)
        argv = ["docker", "compose", "--project-directory", str(part)]
        for name in self.module.params["compose"]:
            argv += ["--file", str(part / name)]
        code, _, said = self.module.run_command([*argv, "config", "--quiet"])
        if code != 0:
            shutil.rmtree(part)
            self.module.fail_json(msg=f"compose cannot read release {place.name}: {said.strip()[-600:]}")
        if not place.exists():
            part.rename(place)
            return
        # File by file, so that the folder, which a server may run from, is there at every moment; release.json last.
        for name in sorted(wanted, key=lambda name: name == "release.json"):
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (part / name).replace(place / name)
        shutil.rmtree(part)


def main() -> None:
    """The module's entry."""
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "required": True},
            "servers": {"type": "list", "elements": "dict", "required": True},
            "secrets": {"type": "dict", "default": {}, "no_log": True},
            "owner": {"type": "int", "default": 0},
            "compose": {"type": "list", "elements": "str", "required": True},
        },
        supports_check_mode=True,
    )
    stage = Stage(module)
    for one in module.params["servers"]:
        stage.server(one)
    module.exit_json(changed=stage.changed, diff=stage.diff)


if __name__ == "__main__":
    main()
