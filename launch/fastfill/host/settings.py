"""From a host's facts to the values that compose needs, each with its reason. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import NamedTuple

from fastfill.errors import NotReadyError, UsageError
from fastfill.host.checks import ARCH
from fastfill.host.facts import HostFacts

INSTANCES_FILE = "compose.instances.yaml"


class Value(NamedTuple):
    """One line of ``.env``, with why it is what it is."""

    name: str
    value: str
    why: str


@dataclass(frozen=True, slots=True)
class Instance:
    """One server.

    Attributes:
        gpus: Indices in the order of the KFD topology.
        render: The numbers of their /dev/dri/renderD nodes.
        port: On the host.
    """

    gpus: tuple[int, ...]
    render: tuple[int, ...]
    port: int


def choose(facts: HostFacts, instances: int, tp: int | None, gpus: list[tuple[int, ...]], port: int) -> list[Instance]:
    """Which GPUs each server gets.

    Args:
        facts: The host.
        instances: How many servers.
        tp: GPUs a server; None for the largest power of two that fits, at most four for a server alone.
        gpus: The user's own choice, one entry a server; empty for none.
        port: Of the first; the others follow.

    Raises:
        NotReadyError: The host has no GPU of the right kind.
        UsageError: The GPUs do not suffice, do not exist, or are given twice.
    """
    usable = [index for index, gpu in enumerate(facts.gpus) if gpu.arch == ARCH]
    if not usable:
        raise NotReadyError(
            f"there is no {ARCH} GPU on this host",
            where=f"{len(facts.gpus)} GPU(s) found",
            next_step="run it on a host with MI350X or MI355X (fastfill preflight says more); without a GPU: "
            "docker compose -f compose.lab.yaml up --wait",
        )
    if gpus and instances not in (1, len(gpus)):
        raise UsageError(
            f"--instances {instances}, and --gpus is given {len(gpus)} times",
            where="--instances, --gpus",
            next_step="give one of them",
        )
    if gpus and tp is not None:
        raise UsageError(
            "--gpus says how many GPUs each server has", where=f"--tp {tp}", next_step="give one of the two"
        )
    chosen = gpus or _split(usable, instances, tp)
    taken: dict[int, int] = {}
    for number, wanted in enumerate(chosen):
        for index in wanted:
            if index not in usable:
                raise UsageError(f"there is no {ARCH} GPU {index}", where="--gpus", next_step=f"choose from {usable}")
            if index in taken:
                raise UsageError(
                    f"GPU {index} is given to servers {taken[index]} and {number}",
                    where="--gpus",
                    next_step="give each GPU to one server: two would run out of memory, or slow each other down",
                )
            taken[index] = number
    return [
        Instance(wanted, tuple(facts.gpus[index].render_minor for index in wanted), port + number)
        for number, wanted in enumerate(chosen)
    ]


def _split(usable: list[int], instances: int, tp: int | None) -> list[tuple[int, ...]]:
    most = len(usable) // instances
    size = tp or (1 << (min(most, 4 if instances == 1 else most).bit_length() - 1) if most else 0)
    if not size or size * instances > len(usable):
        raise UsageError(
            f"{instances} server(s) of {size or 1} GPU(s) need {(size or 1) * instances}; this host has {len(usable)}",
            where="--instances, --tp",
            next_step="lower --instances or --tp",
        )
    return [tuple(usable[size * number : size * (number + 1)]) for number in range(instances)]


def values(
    facts: HostFacts, first: Instance, *, video_gid: int | None, models: str, model: str, bind: str
) -> list[Value]:
    """The lines of ``.env`` for the first server; further ones differ in GPUs and port alone."""
    render_gid = facts.kfd.gid if facts.kfd is not None else 0
    listed = ",".join(map(str, first.gpus))
    return [
        Value("FASTFILL_MODELS", models, "the folder on this host that holds the checkpoints, mounted read-only"),
        Value("FASTFILL_MODEL", f"/models/{model}", "the checkpoint, as the container sees it"),
        Value("FASTFILL_PROFILE", "long-context", "the launch profile: fastfill profiles"),
        Value("FASTFILL_TP", str(len(first.gpus)), f"one rank a GPU; this host has {len(facts.gpus)}"),
        Value("FASTFILL_GPUS", listed, "indices of the GPUs that the server uses"),
        Value("FASTFILL_VIDEO_GID", str(render_gid if video_gid is None else video_gid), "group of /dev/dri/card*"),
        Value("FASTFILL_RENDER_GID", str(render_gid), "group of /dev/kfd: it differs from host to host"),
        Value("FASTFILL_BIND", bind, "the address that the port is open on; /metrics needs no key: see the README"),
        Value("FASTFILL_PORT", str(first.port), "the server's port"),
    ]


def merge(text: str, wanted: list[Value]) -> tuple[str, list[str]]:
    """``.env`` with the values that it lacks; what somebody set there stays.

    Returns:
        The new text, and the names that were there already.
    """
    there = {line.partition("=")[0].strip() for line in text.splitlines() if "=" in line and not line.startswith("#")}
    lines = [text.rstrip("\n")] if text.strip() else ["# Written by `fastfill init`; what you change here stays."]
    lines += [f"# {value.why}\n{value.name}={value.value}" for value in wanted if value.name not in there]
    return "\n".join(lines) + "\n", [value.name for value in wanted if value.name in there]


def compose(instances: list[Instance], kernels: str) -> str:
    """A compose file with one service a server: its own GPUs, port, state, kernel cache and log.

    A server that is given some render nodes alone sees no other GPU, and counts those from 0.

    Args:
        instances: The servers.
        kernels: What compiled kernels depend on: the stack's ``kernel_digest``.
    """
    services = {}
    volumes: dict[str, object] = {}
    for number, instance in enumerate(instances):
        name = f"server-{number}"
        services[name] = {
            "extends": {"file": "compose.yaml", "service": "server"},
            "command": _command(len(instance.gpus)),
            "environment": {"HIP_VISIBLE_DEVICES": ",".join(map(str, range(len(instance.gpus))))},
            "devices": ["/dev/kfd", *(f"/dev/dri/renderD{minor}" for minor in instance.render)],
            "ports": [f"${{FASTFILL_BIND:-127.0.0.1}}:{instance.port}:30000"],
            "volumes": [f"state-{number}:/var/lib/fastfill/state", f"kernels-{number}:/sgl-workspace/aiter/aiter/jit"],
        }
        services[f"prove-{number}"] = {
            "extends": {"file": "compose.yaml", "service": "prove"},
            "entrypoint": ["fastfill", "prove", "--url", f"http://{name}:30000"],
            "depends_on": {name: {"condition": "service_healthy"}},
            "volumes": [f"state-{number}:/var/lib/fastfill/state"],
        }
        volumes |= {f"state-{number}": None, f"kernels-{number}": {"name": f"fastfill-kernels-{kernels[:12]}-{number}"}}
    secrets = {
        "api_key": {"file": "${FASTFILL_API_KEY_FILE:-/dev/null}"},
        "admin_api_key": {"file": "${FASTFILL_ADMIN_API_KEY_FILE:-/dev/null}"},
    }
    return _yaml({"name": "fastfill", "services": services, "volumes": volumes, "secrets": secrets})


def _command(tp: int) -> list[str]:
    model = "${FASTFILL_MODEL:?set it in .env; fastfill init does}"
    words = ["--profile", "${FASTFILL_PROFILE:-long-context}", "--model", model]
    return [*words, "--tp", str(tp), "--host", "0.0.0.0"]  # noqa: S104 - inside the container


def _yaml(document: dict[str, object]) -> str:
    """JSON is YAML, but for the tag that replaces a list instead of adding to it."""
    text = json.dumps(document, indent=2)
    for name in ("devices", "ports", "depends_on"):
        text = text.replace(f'"{name}": ', f'"{name}": !override ')
    header = (
        f"# Written by `fastfill init --instances`: docker compose -f {INSTANCES_FILE} up --wait\n"
        "# One service a server, each with its own GPUs, port, state, kernel cache and log.\n"
    )
    return header + text + "\n"
