"""The locks: what lies on another lock names everything that the other one does not bring."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "requirements"))
from differences import entries


def test_a_pin_with_another_marker_is_another_pin() -> None:
    everywhere, windows = "a==1 \\\n    --hash=sha256:00\n", "a==1 ; sys_platform == 'win32' \\\n    --hash=sha256:00\n"
    assert set(entries(everywhere + "b==2\n")) == {"a==1", "b==2"}
    assert not set(entries(everywhere)) & set(entries(windows))


@pytest.mark.parametrize("file", sorted((ROOT / "requirements").glob("*.txt")), ids=lambda file: file.stem)
def test_every_line_of_a_lock_belongs_to_a_pin(file: Path) -> None:
    text = file.read_text()
    if file.stem not in ("aiter", "lab-torch"):
        assert "".join(entries(text).values()) == text
    assert text.count("==") >= 1 and "--hash=sha256:" in text


def test_the_extra_s_lock_lies_on_the_operator_s() -> None:
    serve, bench = ((ROOT / "requirements" / f"{name}.txt").read_text() for name in ("serve", "bench"))
    names = {pin.split("==")[0] for pin in entries(bench)}
    assert names >= {"lm-eval", "matplotlib", "scipy", "transformers", "datasets", "numpy", "colorama"}
    assert not set(entries(serve)) & set(entries(bench))
    # It is no server: torch would come with gigabytes.
    assert not names & {"torch", "sglang"}
