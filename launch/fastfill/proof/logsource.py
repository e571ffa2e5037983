"""Reads a server's log from where it is: a file, a container, the journal, or the state folder."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fastfill.errors import UsageError
from fastfill.proof.loglines import LogEvidence, Record, of_server, records, scan

RECORD = "kernels.jsonl"
STATE_DIR = "FASTFILL_STATE_DIR"
_LONGEST_READ = 1 << 20
_QUICK_S = 20.0


class Source(NamedTuple):
    """Where the operator says the log is: a file, else the journal, else the container, which may hold traces only."""

    container: str = ""
    file: Path | None = None
    journal: str = ""


def read(source: Source, since: float) -> LogEvidence:
    """The log, as far as it is about the server that answers.

    Args:
        source: Where it is; nowhere stands for the state folder that FASTFILL_STATE_DIR names, if it does.
        since: When the ranks' witnesses began, seconds since 1970; 0 where the server does not say.

    Raises:
        UsageError: A named file, container or unit is not there, or cannot be read.
    """
    check(source)
    if source.file is not None:
        return _file(source.file, since)
    if source.journal:
        return _journal(source.journal)
    if source.container:
        return _container(source.container, since)
    folder = os.environ.get(STATE_DIR)
    if folder and (Path(folder) / RECORD).is_file():
        return _file(Path(folder) / RECORD, since)
    return LogEvidence(source="none", problem="no log was given: --container NAME, --log FILE or --journal UNIT")


def check(source: Source) -> None:
    """Look whether a named source is there, before anything is sent.

    Raises:
        UsageError: It is not, or cannot be read.
    """
    if source.file is not None:
        try:
            source.file.open("rb").close()
        except OSError as error:
            raise _unreadable(source.file, error) from error
    elif source.journal:
        _run(["journalctl", "--no-pager", "--quiet", "-n", "1", "-u", source.journal], "journal's unit", source.journal)
    elif source.container:
        _run(["docker", "container", "inspect", "--format", "{{.Id}}", source.container], "container", source.container)


def _unreadable(path: Path, error: OSError) -> UsageError:
    return UsageError(
        f"cannot read the log: {error.strerror or error}",
        where=str(path),
        next_step="give --log a file that you may read: the server's output, or kernels.jsonl of its state folder",
    )


def _file(path: Path, since: float) -> LogEvidence:
    name = f"file {path.name}"
    try:
        if path.suffix == ".jsonl":
            return _kept(name, records(path.read_text(encoding="utf-8", errors="replace")), since)
        with path.open("rb") as file:
            return scan(name, iter(lambda: file.readline(_LONGEST_READ), b""))
    except OSError as error:
        raise _unreadable(path, error) from error


def _kept(name: str, kept: tuple[Record, ...], since: float) -> LogEvidence:
    if since <= 0:
        return LogEvidence(
            source=name, problem="the server does not say when it began, so these may be another's lines"
        )
    return of_server(name, kept, since)


def _container(name: str, since: float) -> LogEvidence:
    found = scan(f"container {name}", _stream(["docker", "logs", name]))
    if found.lines and found.reaches_start:
        return found
    # The log may have been rotated: the line is in the state folder as well, where fastfill supervise runs the server.
    try:
        done = subprocess.run(
            ["docker", "exec", name, "sh", "-c", f'cat "${STATE_DIR}/{RECORD}"'],
            capture_output=True,
            timeout=_QUICK_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return found
    if done.returncode == 0 and since > 0:
        kept = of_server(f"container {name}, {RECORD}", records(done.stdout.decode("utf-8", "replace")), since)
        if kept.lines:
            return kept
    return found


def _journal(unit: str) -> LogEvidence:
    found = scan(f"journal of {unit}", _stream(["journalctl", "--no-pager", "--quiet", "-o", "cat", "-a", "-u", unit]))
    if found.size == 0:
        return found.model_copy(update={"problem": "the journal has no line of this unit"})
    return found


def _run(argv: list[str], kind: str, name: str) -> None:
    """Ask whether the source is there.

    Raises:
        UsageError: It is not, or its tool is not.
    """
    try:
        done = subprocess.run(argv, capture_output=True, timeout=_QUICK_S, check=False)
    except FileNotFoundError as error:
        raise UsageError(
            f"{argv[0]} is not installed here", where=f"{kind} {name}", next_step="give --log FILE instead"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise UsageError(
            f"{argv[0]} did not answer within {_QUICK_S:.0f} s",
            where=f"{kind} {name}",
            next_step="give --log FILE instead",
        ) from error
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise UsageError(
            f"the {kind} cannot be read: {said[-1][:200] if said else f'exit code {done.returncode}'}",
            where=name,
            next_step="name it as docker ps (systemctl list-units) does, or give --log FILE",
        )


def _stream(argv: list[str]) -> Iterator[bytes]:
    """Lines of a command's output, both streams in the order in which it passes them on."""
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as child:
        assert child.stdout is not None
        try:
            while line := child.stdout.readline(_LONGEST_READ):
                yield line
        finally:
            child.kill()
