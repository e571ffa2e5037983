"""A release: what an instance is started from, named by all that decides how it behaves. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from fastfill.errors import UsageError
from fastfill.fleet.places import SCHEMA, checked

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,40}")
_ID = re.compile(r"sha256:[0-9a-f]{64}")
_ALLOWED = {"name", "image", "image_id", "archive", "compose", "settings", "environment", "command", "why"}
IMAGE = "fastfill-release"
"""The name that a host gives the images of releases: a tag that a later load moves must not change an old release."""


def check(release: dict[str, Any]) -> dict[str, Any]:
    """A release as the inventory gives it.

    Raises:
        UsageError: A key is missing or unknown, or the image is not pinned.
    """

    def wrong(what: str, key: str, next_step: str) -> UsageError:
        return UsageError(what, where=f"fleet_release.{key}", next_step=next_step)

    unknown = sorted(set(release) - _ALLOWED)
    if unknown:
        raise wrong(f"there is no such key: {', '.join(unknown)}", unknown[0], f"known: {', '.join(sorted(_ALLOWED))}")
    if not _NAME.fullmatch(str(release.get("name", ""))):
        raise wrong(f"'{release.get('name', '')}' is no name for a release", "name", "lower case, as 2026-11-a")
    image, image_id = str(release.get("image", "")), str(release.get("image_id", ""))
    if not image:
        raise wrong("no image is given", "image", "NAME@sha256:DIGEST, or NAME with image_id")
    if "@" in image and not _ID.fullmatch(image.partition("@")[2]):
        raise wrong("the digest is not sha256: and 64 hex digits", "image", "docker buildx imagetools inspect NAME")
    if "@" not in image and not _ID.fullmatch(image_id):
        raise wrong(
            "the image is not pinned: a tag may name another image tomorrow",
            "image_id",
            "NAME@sha256:DIGEST, or image_id as `docker image inspect --format {{.Id}} NAME` prints it",
        )
    return release


def pinned_image(release: dict[str, Any]) -> str:
    """The name that the image of a release has on every host."""
    fixed = str(release.get("image_id") or release["image"].partition("@")[2])
    return f"{IMAGE}:{fixed.removeprefix('sha256:')[:20]}"


def identity(release: dict[str, Any], instance: dict[str, Any], files: dict[str, str]) -> str:
    """The release's id for one instance: its name and a hash of everything that decides how the server behaves.

    Args:
        release: As :func:`check` takes it.
        instance: The instance as the inventory gives it.
        files: The compose files by name.
    """
    decides = {key: release.get(key) for key in ("image", "image_id", "settings", "environment", "command")}
    # Where it is bound differs from host to host, and says nothing of how it behaves.
    own = {key: value for key, value in instance.items() if key != "bind"}
    text = json.dumps([SCHEMA, decides, own, files], sort_keys=True)
    return f"{release['name']}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"


def override(release: dict[str, Any], instance: dict[str, Any], release_id: str, files: dict[str, str]) -> str:
    """The compose file that lies over the kit's own: the pinned image, one port, and no restarts by the engine.

    systemd alone owns restarts, and a release that is not proven must not come back by itself.
    """
    name = checked(str(instance["name"]))
    server: dict[str, Any] = {
        "image": pinned_image(release),
        "pull_policy": "never",
        "restart": "no",
        "labels": {"fastfill.release": release_id, "fastfill.instance": name},
        "ports": [f"{instance.get('bind', '127.0.0.1')}:{instance['port']}:30000"],
    }
    if release.get("environment"):
        server["environment"] = {key: str(value) for key, value in release["environment"].items()}
    if release.get("command"):
        server["command"] = release["command"]
    if instance.get("devices"):
        server["devices"] = instance["devices"]
    document: dict[str, Any] = {"name": f"fastfill-{name}", "services": {"server": server}}
    kernels = re.search(r'^x-kernels: &kernels "([^"]+)"', "\n".join(files.values()), re.MULTILINE)
    if kernels:
        # Two servers that compile into one folder wait for each other's locks.
        document["volumes"] = {"kernels": {"name": f"{kernels[1]}-{name}"}}
    text = json.dumps(document, indent=2)
    for key in ("ports", "command", "devices"):
        # JSON is YAML, but for the tag that replaces a list instead of adding to it.
        text = text.replace(f'"{key}": ', f'"{key}": !override ')
    return text + "\n"


def settings(release: dict[str, Any], instance: dict[str, Any]) -> str:
    """``.env``: the release's settings, then the instance's own.

    Raises:
        UsageError: A value that a line of .env cannot hold.
    """
    both = {**release.get("settings", {}), **_of_instance(instance), **instance.get("settings", {})}
    lines = []
    for key, value in sorted(both.items()):
        text = str(value)
        if not re.fullmatch(r"[A-Z][A-Z0-9_]*", key) or re.search(r"[\n\r'\"$#]", text):
            raise UsageError(
                f"{key} cannot stand in .env", where="settings", next_step="one line, no quotes, no $ or #"
            )
        lines.append(f"{key}={text}")
    return "\n".join(lines) + "\n"


def _of_instance(instance: dict[str, Any]) -> dict[str, Any]:
    gpus, profile = instance.get("gpus"), instance.get("profile")
    named = {"FASTFILL_GPUS": ",".join(map(str, gpus)), "FASTFILL_TP": len(gpus)} if gpus else {}
    return named | ({"FASTFILL_PROFILE": profile, "LAB_PROFILE": profile} if profile else {})


def manifest(release: dict[str, Any], instance: dict[str, Any], release_id: str, files: list[str]) -> dict[str, Any]:
    """``release.json``: what the host's own tool needs to start the release."""
    return {
        "schema": SCHEMA,
        "id": release_id,
        "name": release["name"],
        "image": pinned_image(release),
        "image_id": release.get("image_id", ""),
        "files": [*files, "compose.release.yaml"],
        "instance": instance["name"],
    }
