"""Wait for an asynchronous task on a host, and notice when nobody works on it any more.

``async_status`` alone asks on for as long as the task may take, where its host was restarted in between: the job's file
says "started" for ever.
"""

from __future__ import annotations

import time
from typing import Any

from ansible.plugins.action import ActionBase

_TOLD_S = 15.0


class ActionModule(ActionBase):
    """``fleet_wait: {jid: ID, seconds: 900, every: 2}``; what it returned comes back, as from ``async_status``."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Ask until it has ended; it fails where the task failed, took too long, or has gone without a word."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        asked = self._task.args
        jid, every = str(asked["jid"]), float(asked.get("every", 2))
        place = self._remote_expand_user(self.get_shell_option("async_dir", default="~/.ansible_async"))
        job = {"jid": jid, "mode": "status", "_async_dir": place}
        begun = told = time.monotonic()
        end = begun + float(asked["seconds"])
        host = (task_vars or {}).get("inventory_hostname", "")
        self._display.display(f"{self._task.get_name()}: {host} ...")
        while True:
            # Looked at before the job's file is: one that ends in between has written it.
            works = self._low_level_execute_command(_working(jid))["stdout"].strip() == "yes"
            done = self._execute_module("ansible.legacy.async_status", job, task_vars=task_vars)
            if done.get("finished"):
                return result | done
            if not works:
                why = "it ended without a word: it was killed, or its host was restarted; next: run the playbook again"
                return result | {"failed": True, "msg": why}
            if time.monotonic() > end:
                return result | {"failed": True, "msg": f"it has not ended after {asked['seconds']} s"}
            if time.monotonic() - told > _TOLD_S:
                told = time.monotonic()
                self._display.display(f"{self._task.get_name()}: {host} ... {told - begun:.0f} s")
            time.sleep(every)


def _working(jid: str) -> str:
    """A command that says whether a process of the job's is there: its number is on the wrapper's command line."""
    number = jid.partition(".")[0].removeprefix("j")
    # In brackets, so that what asks does not find itself.
    return f"grep -qs '[{number[0]}]{number[1:]}' /proc/[0-9]*/cmdline && echo yes || echo no"
