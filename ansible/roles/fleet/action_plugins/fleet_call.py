"""Ask the fleet's own tool on a host, and put it there first where it is missing or another one.

One connection where the tool is there already. A check leaves nothing there: the tool runs from a folder that goes.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "launch"))

from fastfill.fleet import bundle

OTHER = 78
"""The exit code that says: not this tool. The tool itself has none like it."""


class ActionModule(ActionBase):
    """``fleet_call: {root: DIR, place: tool, words: [...], input: {...}}``; the document comes back as ``answer``.

    With ``keep: false`` a tool that differs is left as it is, as in a check.
    """

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run one command of the tool; it fails where the tool does, with the tool's own words."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        asked = self._task.args
        root, place = str(asked["root"]), str(asked.get("place", "tool"))
        file = f"{root}/{place}/fleet.pyz"
        words = ["--root", root, *map(str, asked["words"])]
        # Always something: without it ssh asks for a terminal, which mixes what the tool says with what it answers.
        given = json.dumps(asked.get("input", {})).encode()
        keep = bool(asked.get("keep", True)) and not self._task.check_mode
        content = bundle.content()
        wanted = hashlib.sha256(content).hexdigest()
        same = f'[ "$(sha256sum {shlex.quote(file)} 2>/dev/null | cut -c-64)" = {wanted} ] || exit {OTHER}; '
        done = self._low_level_execute_command(same + _call(file, words), in_data=given)
        shipped = done["rc"] == OTHER
        if shipped:
            try:
                done = self._shipped(content, file if keep else "", words, given)
            finally:
                self._remove_tmp_path(self._connection._shell.tmpdir)
        result |= {"rc": done["rc"], "stderr": done["stderr"].strip(), "changed": shipped and keep}
        if done["rc"] != 0:
            return result | {"failed": True, "msg": done["stderr"].strip()[-800:] or done["stdout"].strip()[-800:]}
        answer = json.loads(done["stdout"])
        return result | {"answer": answer, "changed": (shipped and keep) or bool(answer.get("changed", False))}

    def _shipped(self, content: bytes, file: str, words: list[str], given: bytes) -> dict[str, Any]:
        folder = self._make_tmp_path()
        there = self._connection._shell.join_path(folder, "fleet.pyz")
        with tempfile.NamedTemporaryFile(suffix=".pyz") as local:
            local.write(content)
            local.flush()
            self._transfer_file(local.name, there)
        self._fixup_perms2((folder, there))
        if not file:
            return dict(self._low_level_execute_command(_call(there, words), in_data=given))
        # Beside its place and then moved there: a unit that starts in this moment finds the old one or the new one.
        part = f"{shlex.quote(file)}.$$"
        put = f"mkdir -p {shlex.quote(str(Path(file).parent))} && install -m 755 {shlex.quote(there)} {part} && "
        put += f"mv {part} {shlex.quote(file)} && "
        return dict(self._low_level_execute_command(put + _call(file, words), in_data=given))


def _call(file: str, words: list[str]) -> str:
    return shlex.join(["python3", file, *words])
