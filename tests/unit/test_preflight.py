"""``fastfill preflight`` on recorded hosts: a good one, and one for each fault."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import host_tree
import pytest
from host_tree import GIB, record, write

from fastfill import __main__, checkpoint
from fastfill.host import facts
from fastfill.host.checks import CHECKS, Check, judge
from fastfill.host.facts import Wanted, arch_of
from fastfill.host.machine import LiveMachine, RecordedMachine, Recorder

NODES = "/sys/class/kfd/kfd/topology/nodes"
GPU = f"{NODES}/4/properties"
ANY = Wanted()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The good host, to be spoilt."""
    return host_tree.good(tmp_path / "host")


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *argv: object) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of ``fastfill preflight ARGV``."""
    monkeypatch.setattr("sys.argv", ["fastfill", "preflight", *map(str, argv)])
    with pytest.raises(SystemExit) as stopped:
        __main__.main()
    out = capsys.readouterr()
    return int(stopped.value.code or 0), out.out, out.err


def checks(root: Path, wanted: Wanted = ANY) -> dict[str, Check]:
    """The checks of a recorded host by id."""
    return {check.id: check for check in judge(facts.read(RecordedMachine(root), wanted), wanted)[0]}


def unlink(root: Path, path: str) -> None:
    """Take one file out of a recorded host."""
    (root / path.lstrip("/")).unlink()


def no_kfd(root: Path) -> None:
    """The KFD device is gone."""
    unlink(root, "/dev/kfd")
    held = json.loads((root / "host.json").read_text())["devices"]
    del held["/dev/kfd"]
    record(root, devices=held)


def root_owned(root: Path) -> None:
    """Every device belongs to root's group."""
    held = json.loads((root / "host.json").read_text())["devices"]
    record(root, devices={path: {"gid": 0, "mode": "0600"} for path in held})


def cut_short(root: Path) -> None:
    """One weight file ends early."""
    path = host_tree.checkpoint(root / "models/qwen") / "model-00001-of-00003.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


def one_missing(root: Path) -> None:
    """One weight file is not there."""
    (host_tree.checkpoint(root / "models/qwen") / "model-00002-of-00003.safetensors").unlink()


def no_driver(root: Path) -> None:
    """amdgpu is not loaded."""
    unlink(root, "/sys/module/amdgpu/version")


def in_tree_driver(root: Path) -> None:
    """The kernel's own amdgpu has no version file."""
    no_driver(root)
    write(root, "/sys/module/amdgpu/refcnt", "12\n")


FAULTS: list[tuple[str, str, Callable[[Path], object], str, str]] = [
    (
        "gpus",
        "fail",
        lambda r: write(r, GPU, host_tree.GPU_NODE.format(version=90402, minor=144)),
        "1 x gfx942",
        "HIP_VISIBLE",
    ),
    ("driver", "fail", no_driver, "not loaded", "modprobe"),
    ("driver", "warn", in_tree_driver, "6.8.0-85-generic", "amdgpu-dkms"),
    ("driver", "warn", lambda r: write(r, "/sys/module/amdgpu/version", "6.12.12"), "older than 6.14", "amdgpu-dkms"),
    ("kfd_device", "fail", no_kfd, "not there", "modprobe"),
    ("kfd_device", "warn", root_owned, "only root", "chgrp render /dev/kfd"),
    ("render_devices", "fail", lambda r: unlink(r, "/dev/dri/renderD136"), "renderD136", "/dev/dri"),
    ("render_devices", "warn", root_owned, "belong to root", "chgrp render"),
    (
        "numa_balancing",
        "warn",
        lambda r: write(r, "/proc/sys/kernel/numa_balancing", "1\n"),
        "1",
        "kernel.numa_balancing=0",
    ),
    (
        "iommu",
        "fail",
        lambda r: write(r, "/proc/cmdline", "ro amd_iommu=on pci=realloc=off"),
        "amd_iommu=on",
        "&iommu=pt ",
    ),
    (
        "pci_realloc",
        "warn",
        lambda r: write(r, "/proc/cmdline", "ro iommu=pt pci=noaer"),
        "pci=noaer",
        "&pci=realloc=off ",
    ),
    (
        "memlock",
        "warn",
        lambda r: write(r, "/proc/self/limits", host_tree.LIMITS + "Max locked memory  8388608  8388608  bytes"),
        "8192 KiB",
        "memlock=-1",
    ),
    ("shm", "fail", lambda r: write(r, "/proc/mounts", "shm /dev/shm tmpfs rw,size=65536k 0 0"), "64 MiB", "size=16g"),
    ("shm", "warn", lambda r: write(r, "/proc/mounts", "shm /dev/shm tmpfs rw,size=8g 0 0"), "8.0 GiB", "size=16g"),
    ("shm", "fail", lambda r: write(r, "/proc/mounts", "tmpfs /run tmpfs rw 0 0"), "no /dev/shm", "mount -t tmpfs"),
    ("disk", "fail", lambda r: record(r, free_bytes={"/": 100 * GIB}), "100.0 GiB free", "docker system df"),
    ("checkpoint", "fail", cut_short, "cut short: ", "hf download"),
    ("checkpoint", "fail", one_missing, "model-00002-of-00003.safetensors is missing", "hf download"),
    (
        "vram_free",
        "fail",
        lambda r: write(r, "/sys/class/drm/renderD136/device/mem_info_vram_used", str(240 * GIB)),
        "renderD136: 240.0 GiB",
        "fuser",
    ),
    (
        "port",
        "fail",
        lambda r: write(r, "/proc/net/tcp6", host_tree.TCP + f"   0: {'0' * 32}:7530 {'0' * 32}:0000 0A 0:0"),
        "30000 is taken",
        "ss -ltnp",
    ),
    ("docker", "fail", lambda r: record(r, docker=""), "does not answer", "systemctl start docker"),
    ("docker", "fail", lambda r: record(r, docker="24.0.7"), "older than 25.0", "docker"),
    ("compose", "fail", lambda r: record(r, compose="2.20.3"), "older than 2.24", "docker-compose-plugin"),
    ("clock", "fail", lambda r: record(r, now=86400.0), "1970-01-02", "set-ntp"),
    ("clock", "warn", lambda r: record(r, synchronised=False), "not synchronised", "set-ntp"),
]
TO_SERVE = Wanted(gpus=8, model="/models/qwen", model_bytes=230 * 10**9)


def test_a_good_host_is_ready(root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    host_tree.checkpoint(root / "models/qwen")
    argv = ("--root", root, "--json", "--gpus", 8, "--model", "/models/qwen", "--model-size", "230GB")
    code, out, err = run(monkeypatch, capsys, *argv)
    document = json.loads(out)
    assert (code, err, document["verdict"], document["gpus"]) == (0, "", "ready", 8)
    assert document["schema"] == "fastfill.preflight/1"
    assert [(check["id"], check["status"], check["fix"]) for check in document["checks"]] == [
        (check.__name__, "pass", "") for check in CHECKS
    ]
    assert document["not_checked"] == []
    assert document["group_add"] == [993]


@pytest.mark.parametrize(
    ("id", "status", "spoil", "value", "fix"), FAULTS, ids=lambda item: item if isinstance(item, str) else ""
)
def test_each_fault_is_found_named_and_given_a_fix(
    id: str, status: str, spoil: Callable[[Path], object], value: str, fix: str, root: Path
) -> None:
    spoil(root)
    if not (root / "models").exists():
        host_tree.checkpoint(root / "models/qwen")
    found = checks(root, TO_SERVE)
    assert found[id].status == status
    assert value in found[id].value
    assert fix in found[id].fix
    related = {"kfd_device", "render_devices"} if spoil is root_owned else {id}
    assert {check.id for check in found.values() if check.status != "pass"} == related


def test_every_check_has_a_fault_that_trips_it() -> None:
    assert {fault[0] for fault in FAULTS} == {check.__name__ for check in CHECKS}


def test_a_failing_check_exits_1_and_a_warning_0(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record(root, synchronised=False)
    code, out, _ = run(monkeypatch, capsys, "--root", root)
    assert (code, out.splitlines()[-1]) == (0, "ready")
    record(root, docker="")
    code, out, _ = run(monkeypatch, capsys, "--root", root)
    assert (code, out.splitlines()[-1]) == (1, "not ready")


def test_without_a_gpu_it_says_so_and_still_makes_the_other_checks(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for node in range(2, 10):
        unlink(root, f"{NODES}/{node}/properties")
    code, out, _ = run(monkeypatch, capsys, "--root", root, "--json")
    document = json.loads(out)
    assert (code, document["verdict"], document["gpus"]) == (4, "no_gpu", 0)
    found = {check["id"]: check["status"] for check in document["checks"]}
    assert (found["gpus"], found["shm"], found["docker"]) == ("fail", "pass", "pass")


def test_an_empty_folder_is_a_host_without_a_gpu_of_which_little_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(monkeypatch, capsys, "--root", tmp_path)
    assert (code, err) == (4, "")
    assert out.splitlines()[-1] == "no AMD GPU here"


def test_a_recorded_host_is_judged_without_a_look_at_this_one(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "proc/cmdline").unlink()
    (root / "proc/cmdline").symlink_to("/proc/cmdline")
    (root / "models").symlink_to("/usr")
    opened: list[Path] = []
    read_text = Path.read_text

    def spy(self: Path, *args: object, **kwargs: object) -> str:
        opened.append(self.resolve())
        return read_text(self, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "read_text", spy)
    monkeypatch.setattr("subprocess.run", lambda *_, **__: pytest.fail("a command was run on this host"))
    monkeypatch.setattr("os.statvfs", lambda *_: pytest.fail("this host's disk was asked"))
    found = checks(root, Wanted(model="/models/qwen"))
    assert "iommu" not in found
    assert found["checkpoint"].status == "fail"
    assert opened
    assert all(path.is_relative_to(root) for path in opened)


def test_a_recording_repeats_what_was_read(root: Path, tmp_path: Path) -> None:
    recorder = Recorder(RecordedMachine(root), tmp_path / "copy")
    wanted = Wanted(gpus=8)
    first = facts.read(recorder, wanted)
    recorder.finish()
    assert facts.read(RecordedMachine(tmp_path / "copy"), wanted) == first
    assert len(first.gpus) == 8


def test_this_host_can_be_recorded_and_replayed(tmp_path: Path) -> None:
    recorder = Recorder(LiveMachine(), tmp_path / "copy")
    first = facts.read(recorder, Wanted())
    recorder.finish()
    assert facts.read(RecordedMachine(tmp_path / "copy"), Wanted()) == first


@pytest.mark.parametrize(
    ("number", "name"), [(90500, "gfx950"), (90402, "gfx942"), (90010, "gfx90a"), (120001, "gfx1201")]
)
def test_the_target_version_is_decoded(number: int, name: str) -> None:
    assert arch_of(number) == name


def test_groups_are_numbers_and_both_kinds_of_device_count(root: Path) -> None:
    held = json.loads((root / "host.json").read_text())["devices"]
    record(root, devices=held | {"/dev/kfd": {"gid": 109, "mode": "0660"}})
    assert "109, 993" in checks(root)["render_devices"].value


def test_too_few_gpus(root: Path) -> None:
    assert checks(root, Wanted(gpus=9))["gpus"].fix == "start with --tp 8"


@pytest.mark.parametrize(
    ("free", "status"), [(int(230e9) + 20 * GIB, "pass"), (int(230e9) + 20 * GIB - 1, "fail")], ids=["just", "just not"]
)
def test_the_disk_must_hold_what_is_still_to_come_and_some_more(free: int, status: str, root: Path) -> None:
    record(root, free_bytes={"/": free})
    assert checks(root, Wanted(model_bytes=230 * 10**9))["disk"].status == status


def test_a_model_that_is_there_needs_no_room_but_for_caches(root: Path) -> None:
    host_tree.checkpoint(root / "models/qwen")
    record(root, free_bytes={"/models": 21 * GIB, "/": 0})
    assert checks(root, Wanted(model="/models/qwen"))["disk"].status == "pass"


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda m: (m / "config.json").unlink(), "config.json is missing"),
        (lambda m: (m / "tokenizer.json").unlink(), "no tokenizer"),
        (lambda m: (m / "model.safetensors.index.json").unlink(), "no model.safetensors.index.json"),
        (lambda m: (m / "model.safetensors.index.json").write_text("{"), "cannot be read"),
        (lambda m: (m / "model.safetensors.index.json").write_text("[]"), "cannot be read"),
        (lambda m: (m / "model-00000-of-00003.safetensors").write_bytes(b""), "empty or cut header"),
        (lambda m: (m / "model-00000-of-00003.safetensors").write_bytes(b"\xff" * 64), "not a safetensors file"),
    ],
)
def test_each_way_a_checkpoint_is_incomplete(spoil: Callable[[Path], object], problem: str, tmp_path: Path) -> None:
    model = host_tree.checkpoint(tmp_path / "m")
    assert checkpoint.inspect(model).problems == ()
    spoil(model)
    (found,) = checkpoint.inspect(model).problems
    assert problem in found


def test_a_link_to_a_blob_that_never_came_is_a_missing_file(tmp_path: Path) -> None:
    model = host_tree.checkpoint(tmp_path / "m")
    path = model / "model-00000-of-00003.safetensors"
    path.unlink()
    path.symlink_to("../blobs/never")
    assert checkpoint.inspect(model).problems == (f"{path.name} is missing",)


@pytest.mark.parametrize("argv", [("--root", "/nowhere"), ("--model-size", "large"), ("--port", "0")])
def test_bad_input_is_a_usage_error(
    argv: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(monkeypatch, capsys, *argv)
    assert (code, out) == (2, "")
    assert argv[1] in err or "--port" in err
