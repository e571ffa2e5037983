"""What is on this host, of all that a rollout may change: one answer, so that a run without changes is short."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
from pathlib import Path
from typing import Any

from fastfill.fleet import report
from fastfill.fleet.engine import Engine

DAEMON = Path("/etc/docker/daemon.json")


def survey(engine: Engine, root: Path, asked: dict[str, Any]) -> dict[str, Any]:
    """Look at the host.

    Args:
        engine: Docker and systemd.
        root: The fleet's folder.
        asked: ``packages``, ``images``, ``files``, ``units`` and ``disks``: names and paths to look at.

    Returns:
        As asked, each name with what is there; ``host``, ``engine``, and :func:`report.host`'s ``instances``.
    """
    return {
        "host": {
            "python": platform.python_version(),
            "memory_mb": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20,
            "init": _first_line(Path("/proc/1/comm")),
        },
        "disks": {place: _free(Path(place)) for place in asked.get("disks", [])},
        "packages": _packages(engine, asked.get("packages", [])),
        "files": {place: _digest(Path(place)) for place in asked.get("files", [])},
        "units": _units(engine, asked.get("units", [])),
        "images": _images(engine, asked.get("images", [])),
        "engine": _engine(engine),
        **report.host(engine, root),
    }


def _first_line(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _free(place: Path) -> int:
    """Bytes free where a path is, or would be."""
    while not place.exists() and place != place.parent:
        place = place.parent
    return shutil.disk_usage(place).free


def _digest(file: Path) -> str:
    """SHA-256 of a file, "" where there is none."""
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return ""


def _packages(engine: Engine, names: list[str]) -> dict[str, dict[str, Any]]:
    """Those that are known here: the version, "" where it is not installed, and whether it is held."""
    if not names:
        return {}
    form = "--showformat=${Package}\t${db:Status-Status}\t${Version}\t${db:Status-Want}\n"
    rows = [line.split("\t") for line in engine.run(["dpkg-query", "--show", form, *names]).out.splitlines()]
    return {
        row[0]: {"version": row[2] if row[1] == "installed" else "", "held": row[3] == "hold"}
        for row in rows
        if len(row) == 4
    }


def _units(engine: Engine, names: list[str]) -> dict[str, dict[str, bool]]:
    if not names:
        return {}
    words = ["systemctl", "show", "--property=Id,ActiveState,UnitFileState", *names]
    found: dict[str, dict[str, bool]] = {}
    for block in engine.run(words, timeout=60).out.split("\n\n"):
        shown = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        active = shown.get("ActiveState") in ("active", "activating", "reloading")
        found[shown.get("Id", "")] = {"active": active, "enabled": shown.get("UnitFileState") == "enabled"}
    return {name: found.get(name, {"active": False, "enabled": False}) for name in names}


def _images(engine: Engine, names: list[str]) -> dict[str, str]:
    """Image to its id, "" where it is not here."""
    return {
        name: ran.out.strip() if ran.code == 0 else ""
        for name in names
        for ran in [engine.run(["docker", "image", "inspect", "--format", "{{.Id}}", name], timeout=60)]
    }


def _engine(engine: Engine) -> dict[str, Any]:
    """Versions, "" where nothing answers; ``settings`` is None where daemon.json cannot be read as JSON."""
    server = engine.run(["docker", "version", "--format", "{{.Server.Version}}"], timeout=60)
    compose = engine.run(["docker", "compose", "version", "--short"], timeout=60)
    servers = engine.run(["docker", "ps", "--quiet", "--filter", "label=fastfill.instance"], timeout=60)
    try:
        text = DAEMON.read_text(encoding="utf-8")
        settings = json.loads(text) if text.strip() else {}
    except FileNotFoundError:
        settings = {}
    except (OSError, ValueError):
        settings = None
    return {
        "version": server.out.strip() if server.code == 0 else "",
        "compose": compose.out.strip() if compose.code == 0 else "",
        "servers": len(servers.out.split()) if servers.code == 0 else 0,
        "settings": settings if isinstance(settings, dict) else None,
    }
