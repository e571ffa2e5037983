"""Renew the cluster's lock while this playbook runs.

A child of the controller asks the lock's host every 15 s, over the task's own connection. It ends with the playbook, so
that a dead controller's lease runs out; and when the lock is no longer this run's.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """``fleet_lease: {command: [...], every: 15}``: the words that renew the lease, and how often."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Start the child; the task itself is done at once."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        command = " ".join(str(word) for word in self._task.args["command"])
        every = float(self._task.args.get("every", 15))
        if self._task.check_mode:
            return result | {"skipped": True}
        controller = os.getppid()
        since = _started(controller)
        child = os.fork()
        if child:
            return result | {"changed": False, "pid": child}
        try:
            self._keep(command, every, controller, since)
        finally:
            os._exit(0)
        return result

    def _keep(self, command: str, every: float, controller: int, since: str) -> None:
        os.setsid()
        # The worker's own pipes belong to the worker.
        with open(os.devnull, "r+b") as nothing:  # noqa: PTH123
            for descriptor in (0, 1, 2):
                os.dup2(nothing.fileno(), descriptor)
        due = time.monotonic() + every
        while _started(controller) == since:
            time.sleep(1)
            if time.monotonic() < due:
                continue
            due = time.monotonic() + every
            try:
                done = self._low_level_execute_command(command)
            except Exception:  # noqa: S112 - a lost connection is tried again until the lease has run out
                continue
            if done.get("rc") == 1:
                return


def _started(pid: int) -> str:
    """When a process began, "" when it is gone: a pid alone may come to belong to another one."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in ("Z", "X") else fields[19]
