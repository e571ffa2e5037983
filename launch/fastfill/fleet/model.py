"""A model's weights on this host: what is there, and fetching them from another host that has them.

A copy grows in a hidden folder beside its place, is verified there, and appears under its revision's name in one step.
"""

from __future__ import annotations

import os
import shlex
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastfill import checkpoint, weights
from fastfill.errors import FastfillError, NotReadyError
from fastfill.fleet import places
from fastfill.fleet.engine import Engine

ALIAS = "fastfill-model-source"
"""The name under which the source's host key is known, whatever its address."""


@dataclass(frozen=True)
class Source:
    """Whom to copy from.

    Attributes:
        address: USER@HOST.
        port: Its sshd's.
        host_key: The sshd's public key, ``TYPE BASE64``; no other one is believed.
        identity: The file with the private key that the source lets in.
        path: Where the source's sshd starts the copy: ``/`` under rrsync, which knows the folder itself.
    """

    address: str
    port: int
    host_key: str
    identity: Path
    path: str = "/"


@dataclass(frozen=True)
class Wanted:
    """The copy that is wanted.

    Attributes:
        folder: Where it will be: a folder named as the revision.
        revision: The commit that every file must be of.
        manifest: As :func:`weights.manifest` gives it for the source's.
        bytes: The source's size.
        stamp: Where it is remembered which files were hashed.
    """

    folder: Path
    revision: str
    manifest: str
    bytes: int
    stamp: Path

    @property
    def part(self) -> Path:
        """Where it grows."""
        return self.folder.with_name(f".{self.folder.name}.part")


def command(source: Source, part: Path, known_hosts: Path, bandwidth: str) -> list[str]:
    """The copying. A file that is half there is continued; one whose size and time are right is not read again.

    Args:
        source: Whom from.
        part: Where to.
        known_hosts: A file that names the source's key for ``ALIAS``.
        bandwidth: As rsync's --bwlimit takes it; "0" for no limit.
    """
    ssh = [
        *("ssh", "-p", str(source.port), "-i", str(source.identity), "-o", "IdentitiesOnly=yes"),
        *("-o", f"UserKnownHostsFile={known_hosts}", "-o", "GlobalKnownHostsFile=/dev/null"),
        *("-o", f"HostKeyAlias={ALIAS}", "-o", "StrictHostKeyChecking=yes", "-o", "BatchMode=yes"),
        *("-o", "ConnectTimeout=20", "-o", "ServerAliveInterval=15"),
    ]
    return [
        *("rsync", "--recursive", "--times", "--chmod=D755,F644", "--partial", "--inplace", "--timeout=120"),
        *(f"--bwlimit={bandwidth}", f"--exclude=/{weights.STAMP}", "--rsh", shlex.join(ssh)),
        *(f"{source.address}:{source.path}", f"{part}/"),
    ]


def size(folder: Path) -> int:
    """Bytes of all files under a folder; 0 where there is none."""
    return sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())


def look(folder: Path, revision: str, stamp: Path) -> dict[str, Any]:
    """What is there.

    Returns:
        ``state``: absent, whole or broken; ``problems``; ``manifest``; ``bytes``; ``hashed``.
    """
    if not folder.is_dir():
        return {"state": "absent", "problems": [], "manifest": "", "bytes": 0, "hashed": 0}
    try:
        problems, hashed = _problems(folder, revision, stamp)
    except (FastfillError, OSError) as error:
        problems, hashed = [_told(error)], 0
    return {
        "state": "broken" if problems else "whole",
        "problems": problems,
        "manifest": "" if problems else weights.manifest(folder),
        "bytes": size(folder),
        "hashed": hashed,
    }


def _problems(folder: Path, revision: str, stamp: Path) -> tuple[list[str], int]:
    """What is wrong with it, and how many files were hashed.

    Raises:
        FastfillError: It was not filled by the hub's client, or what was hashed cannot be remembered.
        OSError: A file cannot be read.
    """
    stamp.parent.mkdir(parents=True, exist_ok=True)
    found = weights.verify(folder, revision, stamp=stamp)
    return [*found.problems, *checkpoint.inspect(folder).problems], found.hashed


def _told(error: FastfillError | OSError) -> str:
    if isinstance(error, FastfillError):
        return f"{error.what} ({error.next_step})" if error.next_step else error.what
    return f"{error.filename}: {error.strerror}" if error.filename else str(error)


def pull(engine: Engine, source: Source, wanted: Wanted, bandwidth: str, seconds: float) -> dict[str, Any]:
    """Copy, verify, and let it appear. What an interrupted one has left is continued.

    Returns:
        ``ok``, ``changed``, ``why``, ``problems``.

    Raises:
        NotReadyError: The disk has no room for it.
    """
    # One copy at a time: a broken-off run's may go on, and the next run waits for it.
    with places.held(wanted.folder.with_name(f".{wanted.folder.name}.lock")):
        if wanted.folder.is_dir():
            there = look(wanted.folder, wanted.revision, wanted.stamp)
            return _said(there["problems"], changed=False)
        wanted.part.mkdir(exist_ok=True)
        _room(wanted)
        with tempfile.TemporaryDirectory() as scratch:
            known = Path(scratch) / "known_hosts"
            known.write_text(f"{ALIAS} {source.host_key}\n", encoding="utf-8")
            ran = engine.run(command(source, wanted.part, known, bandwidth), timeout=seconds)
        if ran.code != 0:
            lines = ran.err.strip().splitlines() or [f"rsync ended with exit code {ran.code}"]
            return _said([f"{source.address}: {lines[0][:300]}"])
        problems = _settle(wanted)
        if not problems:
            # Where the controller is gone nobody else takes it away.
            source.identity.unlink(missing_ok=True)
        return _said(problems)


def _settle(wanted: Wanted) -> list[str]:
    """Verify what was copied and give it its name; what is damaged is taken away, so that it is copied again.

    Where it cannot be verified nothing is taken away: that is no word against the files.
    """
    try:
        if weights.manifest(wanted.part) != wanted.manifest:
            return ["the source's list of files is another one than when it was looked at"]
        problems, _ = _problems(wanted.part, wanted.revision, wanted.stamp)
    except (FastfillError, OSError) as error:
        return [_told(error)]
    if problems:
        hashed = weights.remembered(wanted.stamp)
        for name in weights.named(wanted.part):
            if name not in hashed:
                (wanted.part / name).unlink(missing_ok=True)
        return problems
    os.sync()
    wanted.part.rename(wanted.folder)
    return []


def _said(problems: list[str], *, changed: bool = True) -> dict[str, Any]:
    return {"ok": not problems, "changed": changed, "why": "; ".join(problems), "problems": problems}


def _room(wanted: Wanted) -> None:
    missing = wanted.bytes - size(wanted.part)
    disk = os.statvfs(wanted.part)
    free = disk.f_bavail * disk.f_frsize
    if free < missing * 1.01:
        raise NotReadyError(
            f"the disk has {free / 1e9:.1f} GB free, the model needs {missing * 1.01 / 1e9:.1f} GB more",
            where=str(wanted.folder.parent),
            next_step="take old revisions away, or set model_folder to another disk",
        )
