"""Reads what is there: in this interpreter, in a container, in a running server. No judgement here."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastfill import data, patching
from fastfill.errors import FastfillError, NotReadyError
from fastfill.pinning import stack as stacks
from fastfill.pinning.stack import Stack

STAMP = "fastfill-pins.json"
"""In aiter's checkout: the commits that the image build verified. The image keeps no history of git's."""

Live = dict[str, str | None]


def of_installation(stack: Stack, aiter: Path | None = None) -> Live:
    """What this interpreter would serve with.

    Args:
        stack: Whose kernel files to look for.
        aiter: aiter's checkout; None for the one this interpreter imports.
    """
    try:
        found: Live = {"sglang.version": importlib.metadata.version("sglang").split("+")[0]}
    except importlib.metadata.PackageNotFoundError:
        found = {"sglang.version": None}
    found["patches.sha256"] = _patches(stack)
    place = aiter or _aiter()
    if place is None:
        return found | {f"aiter.kernels.sha256.{name}": None for name in stack.aiter.kernels.sha256}
    return found | of_aiter(stack, place)


def of_aiter(stack: Stack, place: Path) -> Live:
    """The kernel files' hashes in an aiter checkout or site-packages, and the commits that its stamp or git names."""
    from fastfill.kernels import installation

    objects = {item.name: item.sha256 for item in installation.read(place).objects}
    found: Live = {f"aiter.kernels.sha256.{name}": objects.get(name) for name in stack.aiter.kernels.sha256}
    root = place if (place / STAMP).is_file() or (place / ".git").exists() else place.parent
    if (root / STAMP).is_file():
        commits: Mapping[str, str] = json.loads((root / STAMP).read_text(encoding="utf-8"))
        return found | {"aiter.commit": commits.get("aiter"), "aiter.submodule.commit": commits.get("submodule")}
    if (root / ".git").exists():
        found["aiter.commit"] = _head(root)
        found["aiter.submodule.commit"] = _head(root / stack.aiter.submodule.path)
    return found


def of_container(name: str) -> Live:
    """A container's labels, and what ``fastfill pins verify --json`` says inside it.

    Raises:
        NotReadyError: Docker does not answer, or there is no such running container.
    """
    labels = json.loads(_docker("inspect", "--format", "{{json .Config.Labels}}", name)) or {}
    inside = json.loads(_docker("exec", name, "fastfill", "pins", "verify", "--json", "--report"))
    found: Live = {line["name"]: line["live"] for line in inside["fields"]}
    base = str(labels.get("org.opencontainers.image.base.digest") or "")
    return found | {"base.digest": base or None, "stack": labels.get("fastfill.stack.digest")}


def of_server(url: str, key_file: Path | None) -> tuple[Live, dict[str, Any], list[dict[str, Any]]]:
    """A server's version and model, its ``/server_info``, and each rank's own word in ``/fastfill/status``.

    Raises:
        UsageError: What answers is no SGLang server.
    """
    from fastfill.proof.address import api_key, base_url
    from fastfill.proof.server import Server
    from fastfill.proof.transport import Transport

    with Transport(base_url(url), key=api_key(key_file)) as transport:
        server = Server(transport)
        server.facts()
        info, status = dict(server.info), server.status()
    ranks = [rank.model_dump() for rank in status.ranks] if status is not None else []
    return {"sglang.version": str(info.get("version", "")).split("+")[0]}, info, ranks


def flags(info: Mapping[str, Any], wanted: Mapping[str, Any]) -> Live:
    """The live values of a profile's flags, as ``flag.<name>``."""
    found: Live = {}
    for name in wanted:
        key = name.replace("-", "_")
        if key in info:
            found[f"flag.{name}"] = str(info[key])
    return found


def _patches(stack: Stack) -> str | None:
    series = data.patches() / stack.patches.series
    try:
        report = patching.status(series=series)
    except FastfillError:
        return None
    return stacks.series_digest(series) if report.state == "applied" else report.state


def _aiter() -> Path | None:
    for name in ("aiter_meta", "aiter"):
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations:
            return Path(next(iter(spec.submodule_search_locations)))
    return None


def _head(folder: Path) -> str | None:
    argv = ["git", "-C", str(folder), "rev-parse", "HEAD"]
    answer = subprocess.run(argv, capture_output=True, text=True, check=False)
    return answer.stdout.strip() if answer.returncode == 0 else None


def _docker(*words: str) -> str:
    try:
        answer = subprocess.run(["docker", *words], capture_output=True, text=True, check=False)
    except OSError as error:
        raise NotReadyError(
            f"docker cannot be run: {error.strerror}", where=f"docker {' '.join(words)}", next_step="install Docker"
        ) from None
    if answer.returncode != 0:
        raise NotReadyError(
            "docker refused",
            where=f"docker {' '.join(words)}",
            detail=answer.stderr.strip(),
            next_step="name a container that runs, as docker ps does; docker wants root or its group",
        )
    return answer.stdout
