"""Old releases go, except the proven one, the one before, and the one on trial."""

from __future__ import annotations

import shutil
from typing import Any

from fastfill.fleet.engine import Engine
from fastfill.fleet.places import Instance


def surplus(one: Instance, keep: list[str]) -> list[str]:
    """Releases of an instance that no link names and nobody asked to keep."""
    named = {one.link("proven"), one.link("previous"), one.link("candidate"), *keep}
    return [name for name in one.releases() if name not in named]


def prune(engine: Engine, servers: list[Instance], keep: list[str]) -> dict[str, Any]:
    """Take surplus releases of a host away, and their images where no other release of it needs them."""
    gone = {one.name: surplus(one, keep) for one in servers}
    images = {one.manifest(name)["image"] for one in servers for name in gone[one.name]}
    for one in servers:
        for name in gone[one.name]:
            shutil.rmtree(one.release(name))
    needed = {one.manifest(name)["image"] for one in servers for name in one.releases()}
    removed = [image for image in sorted(images - needed) if engine.run(["docker", "rmi", image]).code == 0]
    return {"changed": any(gone.values()), "releases": gone, "images": removed}
