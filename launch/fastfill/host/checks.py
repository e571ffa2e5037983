"""Judges a host: one pure function a check, in the order in which a start would meet them."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from typing import Literal, NamedTuple

from fastfill.host.facts import UNLIMITED, HostFacts, Wanted

ARCH = "gfx950"
GIB = 1 << 30
DRIVER = (6, 14)
"""amdgpu of the 30.10 driver packages, the first made for ROCm 7 and MI350."""
ENGINE, COMPOSE = (25, 0), (2, 24)
"""compose.yaml uses a health check's start_interval (Engine 25) and optional env files (Compose 2.24)."""
SHM_GOOD, SHM_LEAST = 16 * GIB, GIB
"""What SGLang's page on AMD GPUs gives a container, and what RCCL at TP8 surely needs."""
VRAM_IDLE = 0.02
"""Share of a GPU's memory that the driver and its firmware hold when nothing runs, rounded up."""
DISK_SPARE = 20 * GIB
"""Room for compiled kernels and logs beside the model."""
RELEASED = datetime.datetime(2026, 8, 1, tzinfo=datetime.timezone.utc)
"""No right clock shows a time before this; certificates fail on one that does."""


class Check(NamedTuple):
    """One check: its state, the value that decided it, and the fix as a command ("" where there is none to make)."""

    id: str
    status: Literal["pass", "warn", "fail"]
    value: str
    fix: str = ""


class Skipped(NamedTuple):
    """A check that could not be made, and why."""

    id: str
    why: str


Judge = Callable[[HostFacts, Wanted], "Check | Skipped"]
_GRUB = "sudo sed -i 's/^GRUB_CMDLINE_LINUX=\"/&{word} /' /etc/default/grub && sudo update-grub && sudo reboot"


def gpus(facts: HostFacts, wanted: Wanted) -> Check:
    """Every GPU is gfx950, and there are enough."""
    if not facts.gpus:
        return Check(
            "gpus", "fail", "no AMD GPU in the KFD topology", "run on a host with MI350X or MI355X, or: make up"
        )
    kinds = {arch: sum(gpu.arch == arch for gpu in facts.gpus) for arch in sorted({gpu.arch for gpu in facts.gpus})}
    value = ", ".join(f"{count} x {arch}" for arch, count in kinds.items())
    others = ",".join(str(index) for index, gpu in enumerate(facts.gpus) if gpu.arch == ARCH)
    if set(kinds) != {ARCH}:
        fix = f"export HIP_VISIBLE_DEVICES={others}" if others else "use a host with MI350X or MI355X"
        return Check("gpus", "fail", value, fix)
    if len(facts.gpus) < wanted.gpus:
        return Check("gpus", "fail", f"{value}, {wanted.gpus} wanted", f"start with --tp {len(facts.gpus)}")
    return Check("gpus", "pass", value)


def driver(facts: HostFacts, wanted: Wanted) -> Check:
    """amdgpu is loaded and new enough for ROCm 7."""
    if facts.driver is None:
        return Check("driver", "fail", "the amdgpu module is not loaded", "sudo modprobe amdgpu")
    if not facts.driver:
        value = f"the kernel's own amdgpu ({facts.kernel or 'unknown kernel'}), not AMD's package"
        return Check("driver", "warn", value, "sudo apt install amdgpu-dkms && sudo reboot")
    if _version(facts.driver) < DRIVER:
        value = f"amdgpu {facts.driver}, older than {'.'.join(map(str, DRIVER))}"
        return Check("driver", "warn", value, "sudo apt install --only-upgrade amdgpu-dkms && sudo reboot")
    return Check("driver", "pass", f"amdgpu {facts.driver}")


def kfd_device(facts: HostFacts, wanted: Wanted) -> Check:
    """/dev/kfd is there, with a group that a container can be given."""
    if facts.kfd is None:
        return Check("kfd_device", "fail", "/dev/kfd is not there", "sudo modprobe amdgpu && ls -l /dev/kfd")
    value = f"/dev/kfd: group {facts.kfd.gid}, mode {facts.kfd.mode:04o}"
    if facts.kfd.mode & 0o666 == 0o666 or (facts.kfd.gid and facts.kfd.mode & 0o060 == 0o060):
        return Check("kfd_device", "pass", value)
    return Check(
        "kfd_device", "warn", f"{value}: only root can open it", "sudo chgrp render /dev/kfd && sudo chmod 660 /dev/kfd"
    )


def render_devices(facts: HostFacts, wanted: Wanted) -> Check:
    """Every GPU has its /dev/dri/renderD node."""
    absent = [f"/dev/dri/renderD{gpu.render_minor}" for gpu in facts.gpus if gpu.render_minor not in facts.render]
    if absent or not facts.render:
        value = f"not there: {', '.join(absent) or '/dev/dri/renderD*'}"
        return Check("render_devices", "fail", value, "sudo udevadm trigger --subsystem-match=drm && ls -ln /dev/dri")
    groups = group_add(facts)
    value = f"{len(facts.render)} render nodes; pass the groups {', '.join(map(str, groups)) or 'none'}"
    if any(not node.gid and node.mode & 0o006 != 0o006 for node in facts.render.values()):
        return Check("render_devices", "warn", f"{value}; some belong to root", "sudo chgrp render /dev/dri/renderD*")
    return Check("render_devices", "pass", value)


def group_add(facts: HostFacts) -> list[int]:
    """The numeric groups that a container needs: names differ between the host and the image, numbers count."""
    nodes = [*facts.render.values(), *([facts.kfd] if facts.kfd else [])]
    return sorted({node.gid for node in nodes if node.gid})


def numa_balancing(facts: HostFacts, wanted: Wanted) -> Check | Skipped:
    """The kernel does not move pages between NUMA nodes under the server's feet."""
    if facts.numa_balancing is None:
        return Skipped("numa_balancing", "this kernel has no /proc/sys/kernel/numa_balancing")
    if facts.numa_balancing != "0":
        return Check("numa_balancing", "warn", facts.numa_balancing, "sudo sysctl -w kernel.numa_balancing=0")
    return Check("numa_balancing", "pass", "0")


def iommu(facts: HostFacts, wanted: Wanted) -> Check | Skipped:
    """iommu=pt: without it RCCL hangs between GPUs."""
    if not facts.cmdline:
        return Skipped("iommu", "/proc/cmdline cannot be read")
    words = [word for word in facts.cmdline if "iommu" in word]
    value = " ".join(words) or "not on the kernel's command line"
    if any(word == "iommu.passthrough=1" or _holds(word, "iommu", "pt") for word in words):
        return Check("iommu", "pass", value)
    return Check("iommu", "fail" if len(facts.gpus) > 1 else "warn", value, _GRUB.format(word="iommu=pt"))


def pci_realloc(facts: HostFacts, wanted: Wanted) -> Check | Skipped:
    """pci=realloc=off: the kernel leaves the GPUs' windows where the firmware put them."""
    if not facts.cmdline:
        return Skipped("pci_realloc", "/proc/cmdline cannot be read")
    words = [word for word in facts.cmdline if word.startswith("pci=")]
    value = " ".join(words) or "not on the kernel's command line"
    if any(_holds(word, "pci", "realloc=off") for word in words):
        return Check("pci_realloc", "pass", value)
    return Check("pci_realloc", "warn", value, _GRUB.format(word="pci=realloc=off"))


def memlock(facts: HostFacts, wanted: Wanted) -> Check | Skipped:
    """Memory may be pinned without limit."""
    if facts.memlock is None:
        return Skipped("memlock", "/proc/self/limits cannot be read")
    if facts.memlock == UNLIMITED:
        return Check("memlock", "pass", "unlimited")
    value = f"{facts.memlock >> 10} KiB (compose.yaml lifts it for its own containers)"
    return Check("memlock", "warn", value, "ulimit -l unlimited, or for docker run: --ulimit memlock=-1")


def shm(facts: HostFacts, wanted: Wanted) -> Check:
    """The shared memory is large enough for RCCL."""
    if facts.shm is None:
        return Check("shm", "fail", "there is no /dev/shm", "sudo mount -t tmpfs -o size=16g tmpfs /dev/shm")
    fix = "sudo mount -o remount,size=16g /dev/shm"
    status: Literal["pass", "warn", "fail"] = (
        "pass" if facts.shm >= SHM_GOOD else "warn" if facts.shm >= SHM_LEAST else "fail"
    )
    return Check("shm", status, _size(facts.shm), "" if status == "pass" else fix)


def disk(facts: HostFacts, wanted: Wanted) -> Check | Skipped:
    """What is still to be downloaded fits, with room for compiled kernels."""
    place = wanted.model or wanted.disk
    if facts.free is None:
        return Skipped("disk", f"the free space of {place} is not known")
    total, present = wanted.model_bytes, 0
    if facts.checkpoint is not None:
        present = facts.checkpoint.present_bytes
        complete = present if not facts.checkpoint.problems else facts.checkpoint.total_bytes
        total = total or complete
    if total is None:
        return Skipped("disk", f"{_size(facts.free)} free at {place}; give --model or --model-size to compare")
    needed = max(total - present, 0) + DISK_SPARE
    value = f"{_size(facts.free)} free at {place}, {_size(needed)} needed"
    if facts.free < needed:
        return Check(
            "disk", "fail", value, f"free {_size(needed - facts.free)}: docker system df; du -xh --max-depth=2 {place}"
        )
    return Check("disk", "pass", value)


def checkpoint(facts: HostFacts, wanted: Wanted) -> Check | Skipped:
    """The checkpoint is complete."""
    if facts.checkpoint is None:
        return Skipped("checkpoint", "no --model was given")
    if facts.checkpoint.problems:
        first, more = facts.checkpoint.problems[0], len(facts.checkpoint.problems) - 1
        value = f"{first}, and {more} more" if more else first
        return Check("checkpoint", "fail", value, f"hf download MODEL --local-dir {wanted.model}")
    return Check("checkpoint", "pass", f"{_size(facts.checkpoint.present_bytes)} in {wanted.model}")


def vram_free(facts: HostFacts, wanted: Wanted) -> Check | Skipped:
    """No earlier job still holds GPU memory."""
    known = [(gpu, gpu.vram_used, gpu.vram_total) for gpu in facts.gpus if gpu.vram_total and gpu.vram_used is not None]
    if not known:
        return Skipped("vram_free", "sysfs shows no GPU memory" if facts.gpus else "there is no GPU")
    busy = [
        f"renderD{gpu.render_minor}: {_size(used)} of {_size(total or 0)}"
        for gpu, used, total in known
        if used is not None and used > VRAM_IDLE * (total or 0)
    ]
    if busy:
        return Check(
            "vram_free", "fail", f"in use on {', '.join(busy)}", "sudo fuser -v /dev/kfd, and stop what it shows"
        )
    return Check("vram_free", "pass", f"at most {_size(max(used or 0 for _, used, _ in known))} in use on a GPU")


def port(facts: HostFacts, wanted: Wanted) -> Check:
    """Nothing listens on the server's port."""
    if wanted.port in facts.listening:
        return Check(
            "port", "fail", f"{wanted.port} is taken", f"sudo ss -ltnp 'sport = :{wanted.port}', or use --port"
        )
    return Check("port", "pass", f"{wanted.port} is free")


def docker(facts: HostFacts, wanted: Wanted) -> Check | Skipped:
    """The engine answers and knows what compose.yaml asks."""
    return _tool("docker", "Docker Engine", facts.docker, ENGINE, "sudo systemctl start docker && docker version")


def compose(facts: HostFacts, wanted: Wanted) -> Check | Skipped:
    """Compose is there and knows what compose.yaml asks."""
    return _tool("compose", "Compose", facts.compose, COMPOSE, "sudo apt install docker-compose-plugin")


def clock(facts: HostFacts, wanted: Wanted) -> Check | Skipped:
    """The clock is right enough for certificates and for comparing logs of several hosts."""
    if facts.clock is None:
        return Skipped("clock", "the recording holds no clock")
    now = datetime.datetime.fromtimestamp(facts.clock.now, datetime.timezone.utc)
    value, fix = f"{now:%Y-%m-%d %H:%M} UTC", "sudo timedatectl set-ntp true && timedatectl"
    if now < RELEASED:
        return Check("clock", "fail", f"{value}: in the past", fix)
    if facts.clock.synchronised is False:
        return Check("clock", "warn", f"{value}, not synchronised", fix)
    return Check("clock", "pass", value if facts.clock.synchronised is None else f"{value}, synchronised")


CHECKS: tuple[Judge, ...] = (
    gpus,
    driver,
    kfd_device,
    render_devices,
    numa_balancing,
    iommu,
    pci_realloc,
    memlock,
    shm,
    disk,
    checkpoint,
    vram_free,
    port,
    docker,
    compose,
    clock,
)


def judge(facts: HostFacts, wanted: Wanted) -> tuple[list[Check], list[Skipped]]:
    """Every check that can be made, and those that cannot."""
    results = [check(facts, wanted) for check in CHECKS]
    return [item for item in results if isinstance(item, Check)], [
        item for item in results if isinstance(item, Skipped)
    ]


def _tool(id: str, name: str, found: str | None, least: tuple[int, int], fix: str) -> Check | Skipped:
    if found is None:
        return Skipped(id, "the recording does not say")
    if not found:
        return Check(id, "fail", f"{name} does not answer", fix)
    if _version(found) < least:
        return Check(id, "fail", f"{name} {found}, older than {'.'.join(map(str, least))}", fix)
    return Check(id, "pass", f"{name} {found}")


def _version(text: str) -> tuple[int, ...]:
    match = re.search(r"\d+(?:\.\d+)*", text)
    return tuple(map(int, match[0].split("."))) if match else ()


def _holds(word: str, key: str, value: str) -> bool:
    name, _, rest = word.partition("=")
    return name == key and value in rest.split(",")


def _size(count: int) -> str:
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / (1 << 20):.0f} MiB"
