"""A model's weights on a host: the exact copying command, and what may appear under a revision's name."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from test_weights import COMMIT, add

from fastfill import weights
from fastfill.errors import NotReadyError
from fastfill.fleet import model
from fastfill.fleet.engine import Engine, Ran

TENSORS = b"\x02\x00\x00\x00\x00\x00\x00\x00{}"


def fill(folder: Path) -> Path:
    add(folder, "model.safetensors", TENSORS, large=True)
    add(folder, "config.json", b'{"architectures": []}\n', large=False)
    add(folder, "tokenizer.json", b"{}\n", large=False)
    return folder


class Rsync(Engine):
    """Copies from a folder of this machine, or breaks off after some files, or damages one."""

    def __init__(self, source: Path, *, breaks: bool = False, damages: str = "") -> None:
        self.source, self.breaks, self.damages, self.argv = source, breaks, damages, [""]

    def run(self, argv: list[str], timeout: float | None = 300.0, cwd: Path | None = None) -> Ran:
        self.argv = argv
        part = Path(argv[-1])
        if self.breaks:
            (part / "model.safetensors").write_bytes(b"half")
            return Ran(20, "", "rsync error: received SIGINT\nmore")
        shutil.copytree(self.source, part, dirs_exist_ok=True)
        if self.damages:
            (part / self.damages).write_bytes(b"other")
        return Ran(0, "", "")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return fill(tmp_path / "source")


@pytest.fixture
def wanted(tmp_path: Path, source: Path) -> model.Wanted:
    place = tmp_path / "models" / "name" / COMMIT
    return model.Wanted(place, COMMIT, weights.manifest(source), model.size(source), tmp_path / "stamps/s.json")


SOURCE = model.Source("ops@10.0.0.1", 2222, "ssh-ed25519 AAAA", Path("/k"))


def pull(engine: Engine, wanted: model.Wanted) -> dict[str, object]:
    return model.pull(engine, SOURCE, wanted, "500m", 60)


def test_the_copying_command() -> None:
    argv = model.command(SOURCE, Path("/m/.x.part"), Path("/t/known"), "500m")
    assert argv[0] == "rsync" and argv[-2:] == ["ops@10.0.0.1:/", "/m/.x.part/"]
    assert {"--partial", "--inplace", "--bwlimit=500m", "--exclude=/fastfill-model.json"} <= set(argv)
    assert "--delete" not in argv
    spaced = model.command(replace(SOURCE, identity=Path("/a key")), Path("/m"), Path("/t"), "0")  # rsync takes quotes
    assert "-i '/a key'" in spaced[spaced.index("--rsh") + 1]
    ssh = argv[argv.index("--rsh") + 1]
    for words in ("-p 2222", "-i /k", "UserKnownHostsFile=/t/known", "StrictHostKeyChecking=yes", "BatchMode=yes"):
        assert words in ssh


def test_it_appears_whole_and_once_and_the_key_goes(wanted: model.Wanted, source: Path, tmp_path: Path) -> None:
    assert model.look(wanted.folder, COMMIT, wanted.stamp)["state"] == "absent"
    engine, key = Rsync(source), tmp_path / "key"
    key.touch()
    given = model.Source("ops@10.0.0.1", 22, "ssh-ed25519 AAAA", key)
    said = model.pull(engine, given, wanted, "0", 60)
    assert said == {"ok": True, "changed": True, "why": "", "problems": []} and not key.exists()
    seen = model.look(wanted.folder, COMMIT, wanted.stamp)
    assert (seen["state"], seen["hashed"], seen["manifest"]) == ("whole", 0, wanted.manifest)
    assert not wanted.part.exists()
    engine.argv = [""]
    assert not pull(engine, wanted)["changed"] and engine.argv == [""]


def test_what_is_broken_off_stays_for_the_next_time(wanted: model.Wanted, source: Path) -> None:
    said = pull(Rsync(source, breaks=True), wanted)
    assert not said["ok"] and said["why"] == "ops@10.0.0.1: rsync error: received SIGINT"
    assert not wanted.folder.exists() and (wanted.part / "model.safetensors").read_bytes() == b"half"
    assert pull(Rsync(source), wanted)["ok"] and wanted.folder.is_dir()


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_damaged_file_is_refused_by_name_and_copied_again(wanted: model.Wanted, source: Path, name: str) -> None:
    said = pull(Rsync(source, damages=name), wanted)
    assert not said["ok"] and f"{name} is damaged" in str(said["why"])
    assert not wanted.folder.exists() and not (wanted.part / name).exists()
    assert pull(Rsync(source), wanted)["ok"]


def test_other_files_than_those_that_were_looked_at_are_refused(wanted: model.Wanted, source: Path) -> None:
    add(source, "more.bin", b"more", large=True)
    said = pull(Rsync(source), wanted)
    assert not said["ok"] and "another one" in str(said["why"]) and not wanted.folder.exists()


def test_a_disk_without_room_is_said_before_anything_is_copied(wanted: model.Wanted, source: Path) -> None:
    engine = Rsync(source)
    huge = model.Wanted(wanted.folder, COMMIT, wanted.manifest, 10**18, wanted.stamp)
    with pytest.raises(NotReadyError, match="free, the model needs"):
        pull(engine, huge)
    assert engine.argv == [""]


def test_a_damaged_copy_that_is_there_is_broken(wanted: model.Wanted, source: Path) -> None:
    pull(Rsync(source), wanted)
    (wanted.folder / "config.json").write_bytes(b"{}")
    seen = model.look(wanted.folder, COMMIT, wanted.stamp)
    assert seen["state"] == "broken" and "config.json is damaged" in seen["problems"][0]
    assert not pull(Rsync(source), wanted)["ok"]


def test_where_it_cannot_be_verified_nothing_is_taken_away(wanted: model.Wanted, source: Path) -> None:
    """A full disk, or a stamp that is not ours: hundreds of GB that were copied are not at fault."""
    wanted.stamp.mkdir(parents=True)
    said = pull(Rsync(source), wanted)
    assert not said["ok"] and "cannot be remembered" in str(said["why"])
    assert (wanted.part / "model.safetensors").read_bytes() == TENSORS and not wanted.folder.exists()


def test_a_file_that_cannot_be_read_is_named(
    wanted: model.Wanted, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pull(Rsync(source), wanted)

    def torn(*_: object, **__: object) -> weights.Verified:
        raise OSError(5, "Input/output error", "model.safetensors")

    monkeypatch.setattr(weights, "verify", torn)
    seen = model.look(wanted.folder, COMMIT, wanted.stamp)
    assert (seen["state"], seen["problems"]) == ("broken", ["model.safetensors: Input/output error"])


def test_a_folder_that_nobody_fetched_is_broken_with_what_to_do(tmp_path: Path) -> None:
    seen = model.look(tmp_path, COMMIT, tmp_path / "s/s.json")
    assert seen["state"] == "broken" and "fastfill model fetch" in seen["problems"][0]
