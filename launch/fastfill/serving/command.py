"""The command that `fastfill serve` runs, and the environment it sets: built here, run elsewhere."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import NamedTuple

from fastfill.serving.flags import redact, redact_env
from fastfill.serving.settings import Settings

MODULE = "sglang.launch_server"


class Command(NamedTuple):
    """One launch.

    Attributes:
        env: The variables that are set on top of (or instead of) the inherited ones.
        argv: The command line, the interpreter first.
    """

    env: dict[str, str]
    argv: list[str]

    def text(self) -> str:
        """The command as one line for a shell, secrets replaced."""
        env = [f"{name}={value}" for name, value in redact_env(self.env).items()]
        return shlex.join(["env", *env, *redact(self.argv)])


def kit_env(state_dir: Path, *, forced_fallback: bool) -> dict[str, str]:
    """What fastfill's code inside the server reads.

    The fallback is set both ways, so that an inherited variable cannot allow what the profile does not.
    """
    return {"FASTFILL_STATE_DIR": str(state_dir), "FASTFILL_ALLOW_FORCED_FALLBACK": "1" if forced_fallback else "0"}


def build(settings: Settings, *, names: list[str], python: str) -> Command:
    """The command for these settings.

    Args:
        settings: The flags in order, and the whole environment.
        names: The variables to set; the rest is inherited as it is.
        python: The interpreter that has SGLang.
    """
    words = [word for flag in settings.flags for word in flag.words]
    return Command({name: settings.env[name] for name in names}, [python, "-m", MODULE, *words])


def state_dir(port: int, environ: dict[str, str], given: Path | None = None) -> Path:
    """The folder of the kill switch, the audit log and the passes of one server.

    ``given``, else FASTFILL_STATE_DIR, else XDG_STATE_HOME (``~/.local/state``) with ``fastfill/<port>``.
    """
    if given is not None:
        return given.absolute()
    if environ.get("FASTFILL_STATE_DIR"):
        return Path(environ["FASTFILL_STATE_DIR"]).absolute()
    home = Path(environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return home / "fastfill" / str(port)
