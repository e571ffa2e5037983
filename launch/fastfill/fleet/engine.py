"""What is asked of Docker and systemd on a host: each method is one command."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

from fastfill.errors import FastfillError
from fastfill.fleet.places import Instance


class Ran(NamedTuple):
    """A command that ended."""

    code: int
    out: str
    err: str


class State(NamedTuple):
    """A server's container; ``status`` is "" where there is none."""

    status: str = ""
    health: str = ""
    exit_code: int = 0
    release: str = ""
    started: str = ""
    id: str = ""


def compose(instance: Instance, release: str, files: list[str], *words: str) -> list[str]:
    """The command for a release's compose project; paths are the release's own, never a link's."""
    folder = instance.release(release)
    argv = ["docker", "compose", "--project-name", instance.project, "--project-directory", str(folder)]
    for file in files:
        argv += ["--file", str(folder / file)]
    return [*argv, *words]


class Engine:
    """Docker and systemd of this host."""

    def run(self, argv: list[str], timeout: float | None = 300.0, cwd: Path | None = None) -> Ran:
        """A command's end; 124 where it did not end in time."""
        try:
            done = subprocess.run(
                argv, capture_output=True, text=True, errors="replace", timeout=timeout, cwd=cwd, check=False
            )
        except subprocess.TimeoutExpired:
            return Ran(124, "", f"{argv[0]}: not within {timeout} s")
        except OSError as error:
            return Ran(127, "", str(error))
        return Ran(done.returncode, done.stdout, done.stderr)

    def state(self, instance: Instance) -> State:
        """The server's container.

        Raises:
            FastfillError: The engine does not answer: that is no statement about the container.
        """
        ran = self.run(["docker", "inspect", "--type", "container", instance.container], timeout=30)
        if ran.code != 0:
            if "No such" in ran.err:
                return State()
            raise FastfillError(
                f"the engine does not answer: {ran.err.strip()[-300:]}",
                where=instance.container,
                next_step="on this host: systemctl status docker",
            )
        found: dict[str, Any] = json.loads(ran.out)[0]
        now = found["State"]
        return State(
            now["Status"],
            now.get("Health", {}).get("Status", ""),
            int(now.get("ExitCode", 0)),
            found["Config"]["Labels"].get("fastfill.release", ""),
            now.get("StartedAt", ""),
            found["Id"],
        )

    def up(self, instance: Instance, release: str) -> Ran:
        """Start a release's server, or leave it alone where it runs already as the release says."""
        files = instance.manifest(release)["files"]
        words = ("up", "--detach", "--no-build", "--pull", "never", "--no-deps", "--quiet-pull", "server")
        return self.run(compose(instance, release, files, *words), timeout=600)

    def stop(self, instance: Instance) -> None:
        """Stop the server and take its container away; volumes stay, and with them the kill switch."""
        self.run(["docker", "stop", "--signal", "SIGTERM", instance.container], timeout=600)
        self.run(["docker", "rm", instance.container], timeout=60)

    def unit(self, instance: Instance, verb: str) -> Ran:
        """``systemctl VERB`` of the instance's unit."""
        return self.run(["systemctl", verb, instance.unit], timeout=900)

    def active(self, instance: Instance) -> bool:
        """Whether systemd owns the server now."""
        return self.run(["systemctl", "is-active", "--quiet", instance.unit], timeout=30).code == 0

    def prove(self, instance: Instance, seconds: float, *more: str) -> Ran:
        """One proof, by the release's own command line, inside its container; stdout is the document."""
        argv = ["docker", "exec", instance.container, "fastfill", "prove", "--url", "http://127.0.0.1:30000", "--json"]
        return self.run([*argv, "--deadline", f"{seconds:.0f}", *more], timeout=seconds + 30)

    def logs(self, instance: Instance, lines: int = 40) -> str:
        """The end of the server's log."""
        ran = self.run(["docker", "logs", "--tail", str(lines), instance.container], timeout=60)
        return (ran.out + ran.err)[-6000:]

    def wait(self, instance: Instance) -> Ran:
        """Block until the server's container ends."""
        return self.run(["docker", "wait", instance.container], timeout=None)
