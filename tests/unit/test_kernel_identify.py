"""``fastfill kernel identify``: the revision by hash, the object by its own headers, the ways to miss the kernel."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import aiter_tree
import amdgpu_elf
import pytest

from fastfill import __main__
from fastfill.kernels import revisions
from fastfill.kernels.installation import Installation, read
from fastfill.kernels.judge import Identity, judge
from fastfill.kernels.objects import KernelObject, read_object
from fastfill.kernels.revisions import CAUSAL_GROUP, FILES, PLAIN, REVISIONS, SYMBOLS


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *argv: object) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of ``fastfill ARGV``."""
    monkeypatch.setattr("sys.argv", ["fastfill", *map(str, argv)])
    with pytest.raises(SystemExit) as stopped:
        __main__.main()
    out = capsys.readouterr()
    return int(stopped.value.code or 0), out.out, out.err


def installed(revision: revisions.Revision, names: tuple[str, ...] = FILES) -> Installation:
    """An installation whose objects have the published hashes: the files themselves are not ours to ship."""
    objects = tuple(KernelObject(name, revision.sha256[name], "gfx950", SYMBOLS[name], "") for name in names)
    return Installation(Path("aiter"), "object", objects, None, "", None, "", None)


def status(identity: Identity, check: str) -> str:
    """The status of one check, which must be there exactly once unless it is about each object."""
    (found,) = {finding.status for finding in identity.findings if finding.id == check}
    return found


@pytest.mark.parametrize("revision", REVISIONS, ids=lambda revision: revision.id)
def test_each_published_revision_is_recognised(revision: revisions.Revision) -> None:
    identity = judge(installed(revision))
    assert identity.revision == revision.id
    assert identity.broken == (revision.id == "B")
    assert not identity.missing


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("revision", REVISIONS, ids=lambda revision: revision.id)
def test_a_single_object_is_broken_only_if_it_is_a_causal_one_of_b(revision: revisions.Revision, name: str) -> None:
    identity = judge(installed(revision, (name,)))
    assert identity.broken == (revision.id == "B" and "causal" in name)
    shared = revision.id in "BC" and "causal" not in name
    assert identity.revision == ("unknown" if shared else revision.id)


def test_the_hash_table_is_whole_and_each_hash_tells_its_file() -> None:
    names: dict[str, str] = {}
    for revision in REVISIONS:
        assert set(revision.sha256) == set(FILES)
        for name, sha256 in revision.sha256.items():
            assert len(sha256) == 64
            assert names.setdefault(sha256, name) == name
    assert len(names) == 14, "16 files, two of which B and C share"


def test_the_object_that_a_prefill_takes_decides_and_a_stranger_beside_it_is_a_warning() -> None:
    mixed = installed(revisions.BY_ID["D"])
    old = KernelObject(PLAIN, revisions.BY_ID["A"].sha256[PLAIN], "gfx950", SYMBOLS[PLAIN], "")
    identity = judge(mixed._replace(objects=(old, *mixed.objects[1:])))
    assert (identity.revision, status(identity, "revision")) == ("D", "warn")


@pytest.mark.parametrize("wheel", [False, True], ids=["checkout", "wheel"])
def test_a_newer_kernel_is_unknown_and_not_bad(
    wheel: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = aiter_tree.make(tmp_path / "a", wheel=wheel)
    code, out, err = run(monkeypatch, capsys, "kernel", "identify", "--json", root)
    document = json.loads(out)
    assert (code, err) == (0, "")
    assert document["schema"] == "fastfill.kernel/1"
    assert document["kind"] == ("site-packages" if wheel else "checkout")
    assert (document["revision"], document["broken"], document["missing"]) == ("unknown", False, False)
    assert {file["name"]: (file["arch"], file["symbol"]) for file in document["files"]} == {
        name: ("gfx950", symbol) for name, symbol in SYMBOLS.items()
    }
    assert {check["status"] for check in document["checks"]} == {"pass"}


def test_a_broken_one_exits_1_and_names_the_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    content = amdgpu_elf.build(SYMBOLS[CAUSAL_GROUP], code=b"half the rows")
    digest = hashlib.sha256(content).hexdigest()
    monkeypatch.setitem(revisions._BY_HASH, digest, (("B", CAUSAL_GROUP),))
    root = aiter_tree.make(tmp_path / "a", objects=aiter_tree.whole() | {CAUSAL_GROUP: content})
    code, out, _ = run(monkeypatch, capsys, "kernel", "identify", root)
    assert code == 1
    assert out.startswith("revision B: broken")
    assert "leave rows unwritten" in out


@pytest.mark.parametrize(
    ("parts", "check", "says"),
    [
        ({"objects": {}}, "object", "is not there"),
        (
            {"objects": {CAUSAL_GROUP: amdgpu_elf.build(SYMBOLS[CAUSAL_GROUP], mach=amdgpu_elf.GFX942)}},
            "object",
            "gfx942",
        ),
        ({"objects": {CAUSAL_GROUP: amdgpu_elf.build(SYMBOLS[PLAIN])}}, "object", SYMBOLS[PLAIN]),
        ({"objects": {CAUSAL_GROUP: amdgpu_elf.build("")}}, "object", "no kernel"),
        (
            {"objects": {CAUSAL_GROUP: amdgpu_elf.build("x", machine=amdgpu_elf.EM_X86_64)}},
            "object",
            "not for an AMD GPU",
        ),
        ({"objects": {CAUSAL_GROUP: amdgpu_elf.build("x")[:200]}}, "object", "not a whole ELF"),
        ({"objects": {CAUSAL_GROUP: b""}}, "object", "not a whole ELF"),
        ({"objects": {CAUSAL_GROUP: b"version https://git-lfs.github.com/spec/v1\n"}}, "object", "Git LFS"),
        ({"table": aiter_tree.HEADER + aiter_tree.HD128}, "table_row", "no row"),
        ({"table": None}, "table_row", "fmha_fwd.csv"),
        ({"table": aiter_tree.HEADER + aiter_tree.HD256.replace(CAUSAL_GROUP, "x.co")}, "table_row", "not there"),
        ({"table": aiter_tree.HEADER + aiter_tree.HD256.replace("_ZN5aiter38", "_ZN5other")}, "table_row", "holds"),
        ({"gate": aiter_tree.OLD_GATE}, "python_gate", "no hdim_q == 256"),
        ({"gate": aiter_tree.DENSE_ONLY_GATE}, "python_gate", "no hdim_q == 256"),
        ({"module": aiter_tree.MODULE.replace(b"hd256", b"hd128")}, "prebuilt_module", "does not know"),
        ({"module": aiter_tree.MODULE.replace(b"gfx950", b"gfx942")}, "prebuilt_module", "is for gfx942"),
        ({"module": b"truncated"}, "prebuilt_module", "not an ELF"),
        ({"module": b""}, "prebuilt_module", "empty"),
    ],
)
def test_each_way_to_miss_the_kernel(parts: dict[str, object], check: str, says: str, tmp_path: Path) -> None:
    identity = judge(read(aiter_tree.make(tmp_path / "a", **parts)))  # type: ignore[arg-type]
    assert identity.missing
    assert any(
        item.id == check and item.status == "fail" and says in item.value and item.fix for item in identity.findings
    )


@pytest.mark.parametrize(
    ("parts", "check"),
    [({"module": None}, "prebuilt_module"), ({"gate": None}, "python_gate"), ({"gate": "def ("}, "python_gate")],
)
def test_what_cannot_be_seen_is_a_warning(parts: dict[str, object], check: str, tmp_path: Path) -> None:
    identity = judge(read(aiter_tree.make(tmp_path / "a", **parts)))  # type: ignore[arg-type]
    assert (identity.missing, status(identity, check)) == (False, "warn")


def test_the_package_folder_itself_and_an_editable_install_are_found(tmp_path: Path) -> None:
    checkout = aiter_tree.make(tmp_path / "src")
    site = tmp_path / "site-packages"
    site.mkdir()
    (site / "__editable__.amd_aiter-0.1.20.pth").write_text(f"{checkout}\n")
    assert read(site).objects == read(checkout).objects == read(checkout / "aiter").objects
    wheel = aiter_tree.make(tmp_path / "wheel", wheel=True)
    assert read(wheel / "aiter_meta").kind == read(wheel / "aiter").kind == "site-packages"


def test_a_renamed_copy_of_the_object_is_known_by_its_symbol(tmp_path: Path) -> None:
    path = tmp_path / "copy.co"
    path.write_bytes(amdgpu_elf.build(SYMBOLS[CAUSAL_GROUP]))
    assert not judge(read(path)).missing
    path.write_bytes(amdgpu_elf.build("_ZN5aiter37fmha_fwd_hd128_fp8_causal_group_gfx950E"))
    assert judge(read(path)).missing


def test_the_digest_is_of_the_file_as_it_lies(tmp_path: Path) -> None:
    path = tmp_path / "x.co"
    path.write_bytes(b"no ELF at all")
    found = read_object(path)
    assert found.sha256 == hashlib.sha256(b"no ELF at all").hexdigest()
    assert found.arch == found.symbol == "" != found.problem


@pytest.mark.parametrize("what", ["absent", "other"])
def test_what_is_not_aiter_is_a_usage_error(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "other"
    path.mkdir()
    if what == "absent":
        shutil.rmtree(path)
    code, out, err = run(monkeypatch, capsys, "kernel", "identify", path)
    assert (code, out) == (2, "")
    assert str(path) in err
    assert "next:" in err
