"""A machine that can run no engine: said at once, a failure in CI and a skip elsewhere. Needs no engine."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import machine
import pytest


@pytest.fixture
def unable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """engine.sh as it answers there."""
    script = tmp_path / "engine.sh"
    script.write_text("#!/bin/sh\necho 'engine: only root can start an engine' >&2\nexit 4\n")
    script.chmod(0o755)
    monkeypatch.setattr(machine, "HERE", tmp_path)


def test_in_ci_it_is_a_failure(unable: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=r"CI must run this test.*only root can start an engine"):
        machine.engine("up")


def test_elsewhere_it_is_skipped_with_the_reason(unable: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="only root can start an engine"):
        machine.engine("up")


def test_who_is_not_root_is_told_so(tmp_path: Path) -> None:
    argv = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []
    environment = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "DOCKER_CONTEXT": "none",
        "FASTFILL_ENGINE": "/nonexistent",
    }
    with (machine.HERE / "engine.sh").open() as script:
        done = subprocess.run(
            [*argv, "bash", "-s", "up"], stdin=script, capture_output=True, text=True, cwd="/", env=environment
        )
    assert done.returncode == machine.CANNOT, done.stderr
    assert "only root can start an engine" in done.stderr
    assert "set DOCKER_HOST" in done.stderr
