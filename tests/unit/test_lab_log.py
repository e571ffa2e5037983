"""What is shown of the log of a server that died."""

from __future__ import annotations

from pathlib import Path

from fastfill.lab.server import tail


def test_the_reason_is_shown_not_what_sglang_says_after_it(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("first\nValueError: the reason\n[12:41] SIGQUIT received. signum=None\npy-spy not found\n" * 1)
    assert tail(log, 2).splitlines() == ["ValueError: the reason", "[12:41] "]
    log.write_text("\n".join(str(number) for number in range(50)) + "\n" + "x" * 1000)
    assert tail(log, 3).splitlines() == ["48", "49", "x" * 300]
    assert tail(tmp_path / "absent", 3) == ""
