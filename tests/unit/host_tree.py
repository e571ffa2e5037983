"""Builds recorded hosts: a good one with eight MI350X, and the same with one thing wrong."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

GIB = 1 << 30
VRAM = 309_220_868_096
"""Bytes of one MI350X, as KFD shows them."""

CPU_NODE = "cpu_cores_count 64\nsimd_count 0\nmem_banks_count 1\ngfx_target_version 0\ndrm_render_minor 0\n"
GPU_NODE = (
    "cpu_cores_count 0\nsimd_count 1024\nmem_banks_count 1\narray_count 32\ncu_per_simd_array 9\nsimd_per_cu 4\n"
    "gfx_target_version {version}\nvendor_id 4098\ndevice_id 30112\nlocation_id 1280\ndrm_render_minor {minor}\n"
)
LIMITS = "Limit                     Soft Limit           Hard Limit           Units\n"
TCP = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def write(root: Path, path: str, content: str) -> None:
    """Write one file of the host."""
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(content)


def good(root: Path) -> Path:
    """A host on which nothing is to be done: two CPUs, eight GPUs, everything as SGLang's page on AMD GPUs asks."""
    for node in range(10):
        minor = 128 + 8 * (node - 2)
        properties = CPU_NODE if node < 2 else GPU_NODE.format(version=90500, minor=minor)
        write(root, f"/sys/class/kfd/kfd/topology/nodes/{node}/properties", properties)
        if node >= 2:
            write(root, f"/sys/class/drm/renderD{minor}/device/mem_info_vram_total", f"{VRAM}\n")
            write(root, f"/sys/class/drm/renderD{minor}/device/mem_info_vram_used", f"{300 << 20}\n")
            write(root, f"/dev/dri/renderD{minor}", "")
    write(root, "/dev/dri/card0", "")
    write(root, "/dev/kfd", "")
    write(root, "/sys/module/amdgpu/version", "6.16.6\n")
    write(root, "/proc/sys/kernel/osrelease", "6.8.0-85-generic\n")
    write(root, "/proc/sys/kernel/numa_balancing", "0\n")
    write(root, "/proc/cmdline", "BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro iommu=pt pci=realloc=off,noaer amd_iommu=on\n")
    write(
        root,
        "/proc/self/limits",
        LIMITS + "Max locked memory         unlimited            unlimited            bytes\n",
    )
    write(root, "/proc/mounts", "tmpfs /dev/shm tmpfs rw,nosuid,nodev 0 0\n")
    write(root, "/proc/meminfo", f"MemTotal:       {2048 << 20} kB\n")
    write(root, "/proc/net/tcp", TCP + "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000\n")
    devices = {f"/dev/dri/renderD{128 + 8 * gpu}": {"gid": 993, "mode": "0660"} for gpu in range(8)}
    record(
        root,
        devices={**devices, "/dev/kfd": {"gid": 993, "mode": "0660"}},
        free_bytes={"/": 2000 * GIB},
        docker="28.4.0",
        compose="v2.39.2",
        now=1_795_000_000.0,
        synchronised=True,
    )
    return root


def record(root: Path, **changes: Any) -> None:
    """Change what ``host.json`` holds; None takes a key out."""
    path = root / "host.json"
    held = json.loads(path.read_text()) if path.exists() else {}
    held |= changes
    path.write_text(json.dumps({key: value for key, value in held.items() if value is not None}))


def safetensors(path: Path, tensors: dict[str, bytes], dtype: str = "F32") -> None:
    """One weight file in the safetensors format; each tensor one-dimensional."""
    header, body = {}, b""
    for name, data in tensors.items():
        width = 4 if dtype == "F32" else 2
        header[name] = {
            "dtype": dtype,
            "shape": [len(data) // width],
            "data_offsets": [len(body), len(body) + len(data)],
        }
        body += data
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def checkpoint(folder: Path, files: int = 3) -> Path:
    """A complete checkpoint in ``files`` weight files of one tensor each."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer.json").write_text("{}")
    names = {f"t{index}": f"model-{index:05}-of-{files:05}.safetensors" for index in range(files)}
    for tensor, name in names.items():
        safetensors(folder / name, {tensor: b"\x00" * 400})
    index = {"metadata": {"total_size": 400 * files}, "weight_map": names}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder
