"""The state folder is tried before a server starts in it: written to, and locked as the server will."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fastfill.errors import NotReadyError
from fastfill.serving import folder

HOLD = "import fcntl, os, sys; fcntl.flock(os.open(sys.argv[1], 0), fcntl.LOCK_EX); print('held', flush=True); input()"


def refused(place: Path) -> NotReadyError:
    with pytest.raises(NotReadyError) as caught:
        folder.ready(place)
    assert caught.value.where == str(place)
    assert "--state-dir" in caught.value.next_step
    return caught.value


def test_a_good_one_is_left_as_it_was(tmp_path: Path) -> None:
    place = tmp_path / "a" / "state"
    folder.ready(place)
    folder.ready(place)
    assert place.stat().st_mode & 0o777 == 0o700
    assert list(place.iterdir()) == []
    with (place / "server").open("w"):
        handle = os.open(place, os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the server still can
        os.close(handle)


def test_one_that_cannot_be_made(tmp_path: Path) -> None:
    assert "cannot be made" in refused(Path("/proc/none")).what
    (tmp_path / "file").write_text("")
    assert "cannot be made" in refused(tmp_path / "file").what


def test_one_that_is_there_and_cannot_be_written() -> None:
    """Root is held off by no mode; a file system that makes no files holds it off too."""
    assert "cannot be written" in refused(Path("/proc/self")).what


def test_a_full_disk_is_told_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert "cannot be written (No space left on device)" in refused(tmp_path).what
    assert list(tmp_path.iterdir()) == []


def test_one_that_another_server_holds(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None and server.stdout.readline() == "held\n"
        assert "another server uses the state folder" in refused(tmp_path).what
        server.communicate("\n")
    folder.ready(tmp_path)


def test_a_file_system_that_has_no_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    assert "cannot be locked (No locks available)" in refused(tmp_path).what


def test_a_file_system_whose_locks_are_a_pretence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)
    assert "hold nobody off" in refused(tmp_path).what
