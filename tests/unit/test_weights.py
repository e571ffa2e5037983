"""`fastfill model verify` on a folder as the hub's client leaves it: whole, damaged, mixed, changed."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from cli_run import fastfill

from fastfill import weights
from fastfill.errors import UsageError

COMMIT = "a" * 40
LARGE, SMALL = b"weights" * 100, b'{"a": 1}\n'


def add(folder: Path, name: str, content: bytes, *, large: bool, commit: str = COMMIT) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)
    git = hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()
    etag = hashlib.sha256(content).hexdigest() if large else git
    record = folder / ".cache/huggingface/download" / f"{name}.metadata"
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text(f"{commit}\n{etag}\n1700000000.0\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    add(tmp_path, "model.safetensors", LARGE, large=True)
    add(tmp_path, "sub/config.json", SMALL, large=False)
    return tmp_path


def test_a_whole_one_is_hashed_once(folder: Path) -> None:
    assert weights.verify(folder, COMMIT) == (2, 2, ())
    assert weights.verify(folder, COMMIT) == (2, 0, ())
    assert weights.verify(folder, COMMIT, rehash=True) == (2, 2, ())


def test_damage_is_seen_when_the_file_changed(folder: Path) -> None:
    weights.verify(folder, COMMIT)
    (folder / "model.safetensors").write_bytes(LARGE[:-1] + b"X")
    found = weights.verify(folder, COMMIT)
    assert found.hashed == 1
    assert "model.safetensors is damaged" in found.problems[0]
    assert weights.verify(folder, COMMIT).problems, "it is not remembered as whole"


def test_damage_under_the_same_time_needs_a_rehash(folder: Path) -> None:
    weights.verify(folder, COMMIT)
    file = folder / "model.safetensors"
    before = file.stat()
    with file.open("r+b") as opened:
        opened.write(b"X")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert weights.verify(folder, COMMIT).problems == ()
    assert weights.verify(folder, COMMIT, rehash=True).problems != ()


def test_a_missing_file_and_another_revision(folder: Path) -> None:
    (folder / "sub/config.json").unlink()
    problems = weights.verify(folder, "b" * 40).problems
    assert any("the stack pins " + "b" * 40 in line for line in problems)
    assert "sub/config.json is missing" in problems


def test_mixed_revisions(folder: Path) -> None:
    add(folder, "tokenizer.json", b"{}", large=False, commit="c" * 40)
    assert "files of 2 commits are mixed" in weights.verify(folder, COMMIT).problems[0]


def test_a_folder_of_another_kind(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not filled by fastfill model fetch"):
        weights.verify(tmp_path, COMMIT)


def test_the_command_looks_at_the_checkpoint_too(folder: Path) -> None:
    ran = fastfill("model", "verify", str(folder))
    assert ran.code == 1
    assert "config.json is missing" in ran.out


def test_fetch_asks_for_a_resolved_revision(tmp_path: Path) -> None:
    ran = fastfill("model", "fetch", "--into", str(tmp_path))
    assert ran.code == 1
    assert "fastfill pins resolve" in ran.err
