"""Old releases go, except the proven one, the one before, and the one on trial."""

from __future__ import annotations

import shutil
from typing import Any

from fastfill.fleet.engine import Engine
from fastfill.fleet.places import Instance, instances


def surplus(one: Instance, keep: list[str]) -> list[str]:
    """Releases of an instance that no link names and nobody asked to keep."""
    named = {one.link("proven"), one.link("previous"), one.link("candidate"), *keep}
    return [name for name in one.releases() if name not in named]


def prune(engine: Engine, one: Instance, keep: list[str]) -> dict[str, Any]:
    """Take surplus releases away, and their images where no other release of this host needs them."""
    gone = surplus(one, keep)
    images = {one.manifest(name)["image"] for name in gone}
    for name in gone:
        shutil.rmtree(one.release(name))
    needed = {each.manifest(name)["image"] for each in instances(one.root) for name in each.releases()}
    removed = [image for image in sorted(images - needed) if engine.run(["docker", "rmi", image]).code == 0]
    return {"changed": bool(gone), "releases": gone, "images": removed}
