"""Targets and series to patch: small made-up ones, and the two real files of SGLang 0.5.16."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from patch_targets import BACKEND, UTILS, VERSION, Case, edit, numbered, write_series, write_target


@pytest.fixture
def case(tmp_path: Path) -> Case:
    """Two files, two patches: the first touches one file, the second touches both."""
    plain = "".join(numbered(40)).encode()
    before = {BACKEND: plain, UTILS: plain}
    between = {BACKEND: edit(plain, {"line 10\n": "line ten\n", "line 30\n": ""}), UTILS: plain}
    after = {
        BACKEND: edit(between[BACKEND], {"line 20\n": "line 20\nline 20 and a half\n"}),
        UTILS: edit(plain, {"line 1\n": "line one\n", "line 40\n": "line forty"}),
    }
    steps = [
        {BACKEND: (before[BACKEND], between[BACKEND])},
        {BACKEND: (between[BACKEND], after[BACKEND]), UTILS: (before[UTILS], after[UTILS])},
    ]
    root = write_target(tmp_path / "site-packages", before)
    return Case(root, write_series(tmp_path / "series", steps), before, between, after)


@pytest.fixture(scope="session")
def real_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SGLang's own wheel; kept in the user's cache, so that it is downloaded once."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fastfill" / "wheels"
    wheels = sorted(cache.glob(f"sglang-{VERSION}-*.whl"))
    if not wheels:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", f"sglang=={VERSION}"]
        subprocess.run([*command, "--dest", str(cache)], check=True, timeout=300)
        wheels = sorted(cache.glob(f"sglang-{VERSION}-*.whl"))
    return wheels[-1]


@pytest.fixture
def real_target(real_wheel: Path, tmp_path: Path) -> Path:
    """A site-packages folder with the two files of the wheel that the shipped series touches."""
    with zipfile.ZipFile(real_wheel) as wheel:
        return write_target(tmp_path / "real", {path: wheel.read(path) for path in (BACKEND, UTILS)})


@pytest.fixture
def failing_rename(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Make the n-th rename of a file under a target fail once, as a full or broken disk would."""
    real = Path.replace
    left = [0]

    def replace(self: Path, target: Path) -> Path:
        left[0] -= 1
        if left[0] == 0:
            raise OSError(28, "No space left on device", str(target))
        return real(self, target)

    def arm(nth: int) -> None:
        left[0] = nth

    monkeypatch.setattr(Path, "replace", replace)
    yield arm
