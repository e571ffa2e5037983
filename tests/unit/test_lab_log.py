"""What is shown of the log of a server that died."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastfill.errors import NotReadyError
from fastfill.lab import server
from fastfill.lab.server import tail
from fastfill.lab.spec import LabSpec


def test_the_reason_is_shown_not_what_sglang_says_after_it(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("first\nValueError: the reason\n[12:41] SIGQUIT received. signum=None\npy-spy not found\n" * 1)
    assert tail(log, 2).splitlines() == ["ValueError: the reason", "[12:41] "]
    log.write_text("\n".join(str(number) for number in range(50)) + "\n" + "x" * 1000)
    assert tail(log, 3).splitlines() == ["48", "49", "x" * 300]
    assert tail(tmp_path / "absent", 3) == ""


def test_a_port_lost_while_starting_is_said_at_once(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', 20001): in use\n")
    with pytest.raises(NotReadyError, match="port 20001 was taken"):
        server._wait(LabSpec(port=20001), lambda: None, log, 60)
