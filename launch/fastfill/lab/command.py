"""The command and the environment of a lab server: built here, run in ``process``."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fastfill.lab import models, packages
from fastfill.lab.spec import LabSpec

# What a server of the lab inherits from the caller's shell would make two runs differ.
_DROPPED = (
    "SGLANG_",
    "SGL_",
    "AITER_",
    "FASTFILL_",
    "PYTHON",
    "TRITON_",
    "GPU_ARCHS",
    "ENABLE_CK",
    "OMP_",
    "HF_",
    "TORCH_",
)
_OVERRIDES: tuple[tuple[str, str | None, str], ...] = (
    ("device", "cpu", "no GPU here"),
    ("disable-cuda-graph", None, "a CPU has no graphs"),
    ("sleep-on-idle", None, "an idle scheduler polls on a whole core"),
    ("mem-fraction-static", "0.3", "the sum is for 288 GB of GPU memory; with chunking off SGLang's own goes negative"),
    ("max-total-tokens", "32768", "SGLang would take most of the machine's memory"),
    ("max-running-requests", "16", "the request table is rows x context length"),
    ("context-length", str(models.MAX_POSITION), "the tiny models' own"),
)
_TP2: tuple[tuple[str, str | None, str], ...] = (("disable-custom-all-reduce", None, "gloo does it"),)
_LINEAR: tuple[tuple[str, str | None, str], ...] = (
    ("max-mamba-cache-size", "160", "SGLang would fill 2.6 GB with linear-attention states"),
)
DELAY = "delay-ms"
"""In the run folder: how many ms the emulated kernel sleeps in each call; no file, no sleep."""


class Paths(NamedTuple):
    """Where a lab server finds and leaves things.

    Attributes:
        python: The environment's interpreter.
        links: The folder that holds fastfill's packages (``packages.link``).
        sources: Files of SGLang to be read in the place of the installed ones; None for none.
        model: The checkpoint.
        run: The run folder: log, call log, state.
        state: The state folder.
    """

    python: Path
    links: Path
    sources: Path | None
    model: Path
    run: Path
    state: Path


def overrides(spec: LabSpec) -> list[tuple[str, str | None, str]]:
    """The flags that the lab sets over the profile's: (name, value, why). The user's own flags win over them."""
    mine = {word[2:].split("=")[0] for word in spec.flags if word.startswith("--")}
    wanted = [*_OVERRIDES, *(_TP2 if spec.tp > 1 else ()), *(_LINEAR if _has_linear_attention(spec.model) else ())]
    return [entry for entry in wanted if entry[0] not in mine]


def argv(spec: LabSpec, paths: Paths) -> list[str]:
    """The command line: ``fastfill serve`` in the lab's environment."""
    words = [str(paths.python), "-m", "fastfill", "serve"]
    words += ["--profile", spec.profile, "--model", str(paths.model), "--tp", str(spec.tp)]
    words += ["--host", spec.host, "--port", str(spec.port), "--state-dir", str(paths.state)]
    for name, value in sorted(spec.env.items()):
        words += ["--env", f"{name}={value}"]
    for condition in spec.allow:
        words += ["--allow", condition]
    words.append("--")
    for flag, setting, _ in overrides(spec):
        words += [f"--{flag}"] if setting is None else [f"--{flag}", setting]
    return [*words, *spec.flags]


def on_a_cpu(links: Path, inherited: Mapping[str, str], sources: Path | None = None) -> dict[str, str]:
    """The environment in which the lab's interpreter runs SGLang's code on a CPU; ``sources`` as in :class:`Paths`."""
    env = {name: value for name, value in inherited.items() if not name.startswith(_DROPPED)}
    if sources is not None:
        env["FASTFILL_LAB_SOURCES"] = str(sources)
    return env | {
        "PYTHONPATH": os.pathsep.join(map(str, python_path(links))),
        "PYTHONUNBUFFERED": "1",
        "PYTHONWARNINGS": "ignore",
        "SGLANG_USE_CPU_ENGINE": "1",
        "TRITON_INTERPRET": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        # Two threads a process at most: more than the machine has make each other wait.
        "OMP_NUM_THREADS": "2",
        # Threads that wait must not spin: where others use the cores too, small operations then take 30 times as long.
        "OMP_WAIT_POLICY": "PASSIVE",
        # SGLang compiles a few small functions with torch's inductor, which needs a C++ compiler here.
        "TORCH_COMPILE_DISABLE": "1",
    }


def environment(spec: LabSpec, paths: Paths, inherited: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of the server."""
    env = on_a_cpu(paths.links, inherited, paths.sources) | {
        "AITER_EMULATOR_LOG": str(paths.run / "aiter.jsonl"),
        "AITER_EMULATOR_DELAY_FILE": str(paths.run / DELAY),
        "AITER_EMULATOR_LAYERS": str(attention_layers(spec.model)),
    }
    if spec.tp > 1:
        env["OMP_NUM_THREADS"] = "1"
        # Only the number of parts matters: it is how SGLang's CPU engine learns the number of ranks.
        env["SGLANG_CPU_OMP_THREADS_BIND"] = "|".join(str(rank) for rank in range(spec.tp))
    return env


def python_path(links: Path) -> list[Path]:
    """What goes on PYTHONPATH, in front of the environment's packages."""
    return [links, packages.emulator(), packages.standins()]


def attention_layers(model: str) -> int:
    """Full-attention layers of a variant or of a checkpoint's folder."""
    text = _text_config(model)
    kinds = text.get("layer_types")
    return int(kinds.count("full_attention") if kinds else text["num_hidden_layers"])


def _has_linear_attention(model: str) -> bool:
    return "linear_attention" in (_text_config(model).get("layer_types") or ())


def _text_config(model: str) -> dict[str, Any]:
    if model in models.VARIANTS:
        description = models.config(model)
    else:
        description = json.loads((Path(model) / "config.json").read_text(encoding="utf-8"))
    text: dict[str, Any] = description.get("text_config", description)
    return text
