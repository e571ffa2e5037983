"""Is an arm what it should be? ``fastfill prove`` asks the server; the answer either bears the arm out or not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from fastfill.benchmark.arms import Arm
from fastfill.benchmark.connection import Connection
from fastfill.benchmark.grid import Cell
from fastfill.errors import FastfillError, NotReadyError
from fastfill.proof.address import ADMIN_KEY_VARIABLE, KEY_VARIABLE, without_keys
from fastfill.proof.server import Server

GRACE_S = 60.0
"""How much longer than its own deadline a proof may take: its import, its last requests, its report."""


class Proof(NamedTuple):
    """What a proof says of an arm.

    Attributes:
        holds: Whether the path fires where it must, and does not where it must not.
        why: One sentence.
        context: Tokens that a request may have, prompt and answer together; 0 where the server does not say.
        document: ``fastfill prove``'s own.
        about: What the server says of its kernel, its GPU, and what it runs on.
    """

    holds: bool
    why: str
    context: int
    document: dict[str, Any]
    about: dict[str, str]

    def misfit(self, cell: Cell) -> str:
        """Why the server cannot serve this cell; empty where it can."""
        needed = cell.isl + cell.osl
        if self.context and needed >= self.context:
            return f"{cell.isl} + {cell.osl} tokens do not fit the server's context of {self.context}"
        return ""


def judge(arm: Arm, document: dict[str, Any], context: int = 0) -> Proof:
    """Hold a proof's document against what the arm should be.

    Args:
        arm: Which side.
        document: As ``fastfill prove --json`` prints it.
        context: See :class:`Proof`.
    """
    verdict = document.get("verdict")
    summary = f"{verdict or 'no verdict'}: {document.get('summary', '')}"
    if reason := document.get("reason"):
        summary += f" ({reason['id']})"
    wanted = "FIRED" if arm.fires else "NOT_FIRED"
    if verdict == wanted:
        return Proof(True, summary, context, document, {})
    return Proof(False, f"prove says {summary}, and {wanted} is what this arm must be", context, document, {})


def prove(connection: Connection, arm: Arm, *, deadline_s: float, prompt_tokens: int | None) -> Proof:
    """Run ``fastfill prove`` against the server, in a process of its own: its JSON document is what it promises.

    Raises:
        FastfillError: It printed no document, or none in time.
    """
    argv = [sys.executable, "-m", "fastfill", "prove", "--url", connection.url, "--json"]
    argv += ["--deadline", f"{deadline_s:g}"]
    # How the path fares under load is what the benchmark itself shows, run by run.
    argv += ["--load", "0"]
    if prompt_tokens is not None:
        argv += ["--prompt-tokens", str(prompt_tokens)]
    # The key goes by the environment: a command line shows in process lists.
    keys = {KEY_VARIABLE: connection.key, ADMIN_KEY_VARIABLE: connection.admin_key}
    env = without_keys(os.environ) | {name: key for name, key in keys.items() if key}
    limit = deadline_s + GRACE_S
    try:
        answer = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=limit)
    except subprocess.TimeoutExpired as error:
        raise NotReadyError(
            f"fastfill prove did not end within {limit:.0f} s",
            where=connection.url,
            next_step="look at the server's log: it takes requests and does not answer them",
        ) from error
    try:
        document = json.loads(answer.stdout)
    except ValueError as error:
        raise FastfillError(
            "fastfill prove printed no document", where=connection.url, detail=answer.stderr[-1000:]
        ) from error
    context, about = connection.visit(_look)
    return judge(arm, document, context)._replace(about=about)


def _look(server: Server) -> tuple[int, dict[str, str]]:
    status = server.status()
    if status is None or not status.ranks:
        return 0, {}
    first = status.ranks[0].deployment
    says = {id: f"{first[id].value} ({first[id].status})" for id in ("kernel_missing", "kernel_broken") if id in first}
    about = {
        "kernel": "; ".join([*(f"{id}: {value}" for id, value in says.items()), installed_kernel()]),
        "gpu": first["arch_not_gfx950"].value if "arch_not_gfx950" in first else "not known",
    }
    server.facts()
    if device := server.info.get("device"):
        about["device"] = str(device)
    return max(rank.context_len for rank in status.ranks), about


def installed_kernel() -> str:
    """The revision of the aiter that is installed beside this command, which in the server's image is the server's."""
    import importlib.util

    from fastfill.kernels import installation
    from fastfill.kernels.judge import judge as identify

    for package in ("aiter_meta", "aiter"):
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.submodule_search_locations:
            try:
                found = identify(installation.read(Path(next(iter(spec.submodule_search_locations))).parent))
            except FastfillError:
                continue
            return f"revision {found.revision} beside this command"
    return "no aiter beside this command: its revision was not read"
