"""Reads a machine into the facts that the checks decide on. No judgement here."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fastfill import checkpoint
from fastfill.checkpoint import Checkpoint
from fastfill.host.machine import Clock, DeviceNode, Machine

NODES = "/sys/class/kfd/kfd/topology/nodes"
UNLIMITED = -1


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU of the KFD topology.

    Attributes:
        node: Its number in the topology.
        arch: Its ISA, ``gfx950``.
        render_minor: The number in ``/dev/dri/renderD<number>``.
        vram_total: Bytes, None if sysfs does not say.
        vram_used: Bytes, None if sysfs does not say.
    """

    node: int
    arch: str
    render_minor: int
    vram_total: int | None
    vram_used: int | None


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the host is to do.

    Attributes:
        gpus: GPUs needed at least.
        port: The server's TCP port.
        disk: Where the model and the caches lie.
        model: The checkpoint's folder, "" for none named.
        model_bytes: The model's size, None if not known.
    """

    gpus: int = 1
    port: int = 30000
    disk: str = "/"
    model: str = ""
    model_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class HostFacts:
    """A host.

    Attributes:
        gpus: The GPUs of the KFD topology.
        driver: amdgpu's version; "" for the kernel's own (it has none), None if it is not loaded.
        kernel: The kernel's release.
        kfd: /dev/kfd, None if it is not there.
        render: /dev/dri/renderD<number> by number.
        numa_balancing: Content of /proc/sys/kernel/numa_balancing, None if the kernel has none.
        cmdline: The kernel's command line, by word.
        memlock: Limit of locked memory in bytes, UNLIMITED, or None if unknown.
        shm: Size of /dev/shm in bytes, None if it is not mounted.
        free: Free bytes on the model's disk, None if unknown.
        checkpoint: The model's folder, None if none was named.
        listening: TCP ports that something listens on.
        docker: Version of the engine; "" if it does not answer, None if it was not asked.
        compose: Version of Compose; likewise.
        clock: The clock, None if unknown.
    """

    gpus: tuple[Gpu, ...]
    driver: str | None
    kernel: str
    kfd: DeviceNode | None
    render: dict[int, DeviceNode]
    numa_balancing: str | None
    cmdline: tuple[str, ...]
    memlock: int | None
    shm: int | None
    free: int | None
    checkpoint: Checkpoint | None
    listening: frozenset[int]
    docker: str | None
    compose: str | None
    clock: Clock | None


def read(machine: Machine, wanted: Wanted) -> HostFacts:
    """Read a machine."""
    loaded = bool(machine.names("/sys/module/amdgpu"))
    return HostFacts(
        gpus=_gpus(machine),
        driver=(machine.text("/sys/module/amdgpu/version") or "") if loaded else None,
        kernel=machine.text("/proc/sys/kernel/osrelease") or "",
        kfd=machine.node("/dev/kfd"),
        render=_render_nodes(machine),
        numa_balancing=machine.text("/proc/sys/kernel/numa_balancing"),
        cmdline=tuple((machine.text("/proc/cmdline") or "").split()),
        memlock=_memlock(machine.text("/proc/self/limits") or ""),
        shm=_shm(machine.text("/proc/mounts") or "", machine.text("/proc/meminfo") or ""),
        free=machine.free_bytes(wanted.model or wanted.disk),
        checkpoint=checkpoint.inspect(machine.locate(wanted.model)) if wanted.model else None,
        listening=_listening(machine),
        docker=machine.version("docker"),
        compose=machine.version("compose"),
        clock=machine.clock(),
    )


def arch_of(gfx_target_version: int) -> str:
    """The ISA's name: 90500 is gfx950, 90402 gfx942, 90010 gfx90a (major, minor, stepping; two decimal digits each)."""
    major, minor, stepping = gfx_target_version // 10000, gfx_target_version // 100 % 100, gfx_target_version % 100
    return f"gfx{major}{minor:x}{stepping:x}"


def _gpus(machine: Machine) -> tuple[Gpu, ...]:
    found = []
    for name in sorted(machine.names(NODES), key=lambda name: (len(name), name)):
        words = [line.split() for line in (machine.text(f"{NODES}/{name}/properties") or "").splitlines()]
        values = {word[0]: int(word[1]) for word in words if len(word) == 2 and word[1].isdigit()}
        if not name.isdigit() or not values.get("simd_count"):
            continue  # a CPU is a node too
        minor = values.get("drm_render_minor", -1)
        device = f"/sys/class/drm/renderD{minor}/device"
        found.append(
            Gpu(
                node=int(name),
                arch=arch_of(values.get("gfx_target_version", 0)),
                render_minor=minor,
                vram_total=_number(machine.text(f"{device}/mem_info_vram_total")),
                vram_used=_number(machine.text(f"{device}/mem_info_vram_used")),
            )
        )
    return tuple(found)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


def _render_nodes(machine: Machine) -> dict[int, DeviceNode]:
    found = {}
    for name in machine.names("/dev/dri"):
        match = re.fullmatch(r"renderD(\d+)", name)
        node = machine.node(f"/dev/dri/{name}") if match else None
        if match and node is not None:
            found[int(match[1])] = node
    return found


def _memlock(limits: str) -> int | None:
    match = re.search(r"^Max locked memory\s+(\S+)", limits, re.MULTILINE)
    if match is None:
        return None
    return UNLIMITED if match[1] == "unlimited" else _number(match[1])


def _shm(mounts: str, meminfo: str) -> int | None:
    """A tmpfs that names no size may grow to half of the memory."""
    sizes = []
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 4 or fields[1] != "/dev/shm":  # noqa: S108
            continue
        size = re.search(r"(?:^|,)size=(\d+)([kmg]?)(?:,|$)", fields[3])
        memory = re.search(r"^MemTotal:\s+(\d+) kB", meminfo, re.MULTILINE)
        if size:
            sizes.append(int(size[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[size[2]])
        elif memory:
            sizes.append((int(memory[1]) << 10) // 2)
    return sizes[-1] if sizes else None


def _listening(machine: Machine) -> frozenset[int]:
    ports = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in (machine.text(table) or "").splitlines()[1:]:
            fields = line.split()
            if len(fields) > 3 and fields[3] == "0A":
                ports.add(int(fields[1].rpartition(":")[2], 16))
    return frozenset(ports)
