"""Constants of the time model from published figures, or from a calibration's file."""

from __future__ import annotations

import json
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from fastfill.errors import UsageError
from fastfill.planning.assumptions import Assumptions
from fastfill.planning.times import Times

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SCHEMA = "fastfill.plan_calibration/1"
NOT_MEASURED = "not measured on MI350X"


@lru_cache(maxsize=1)
def table() -> dict[str, Any]:
    """figures.toml."""
    return tomllib.loads((Path(__file__).resolve().parent / "figures.toml").read_text(encoding="utf-8"))


class Model(NamedTuple):
    """What the time and memory of a model depend on.

    Attributes:
        name: As it was given.
        architecture: From its config.
        full_layers: Layers with full attention.
        q_heads: Query heads of the whole model.
        kv_heads: Key/value heads of the whole model.
        head_dim: Elements a head.
        weight_bytes: Of the checkpoint's files; None when they are not here.
        quantised: Whether the checkpoint is quantised.
        context: The longest sequence it was made for.
        hybrid: Whether it has linear-attention layers.
    """

    name: str
    architecture: str
    full_layers: int
    q_heads: int
    kv_heads: int
    head_dim: int
    weight_bytes: int | None
    quantised: bool
    context: int | None
    hybrid: bool


class TimeModel(NamedTuple):
    """The constants, and where they come from.

    Attributes:
        times: The constants.
        source: One line.
        measured: Whether a server was measured; else everything is "not measured on MI350X".
        blocking: Whether a pass is over before the scheduler goes on, as on a CPU.
    """

    times: Times
    source: str
    measured: bool
    blocking: bool = False


def gpu(name: str) -> dict[str, Any]:
    """A GPU's published figures.

    Raises:
        UsageError: There are none.
    """
    gpus = table()["gpu"]
    if name not in gpus:
        raise UsageError(f"no figures are known for the GPU {name}", where="--gpu", next_step=f"{', '.join(gpus)}")
    return dict(gpus[name])


def parameters(model: Model, assumptions: Assumptions) -> tuple[float, float]:
    """Active and all parameters, in 10^9."""
    known = table()["parameters"].get(model.architecture, {})
    stored = model.weight_bytes / 1e9 * 8 / _bits(model, assumptions) if model.weight_bytes else known.get("all")
    active = assumptions.number("active_parameters", known.get("active") or stored)
    if "active" in known:
        assumptions.note("active_parameters", f"{active:g} ({known['source']})")
    return active, max(stored or active, active)


def _bits(model: Model, assumptions: Assumptions) -> float:
    bits = assumptions.number("weight_bits", 4.25 if model.quantised else 16.0)
    assumptions.note(
        "weight_bits", f"{bits:g}" + (" (a quantised checkpoint is taken to be MXFP4)" if bits < 8 else "")
    )
    return bits


def weights(model: Model, assumptions: Assumptions) -> int:
    """Bytes of all weights: the files', or what the parameters take."""
    if model.weight_bytes:
        return int(assumptions.number("weights_gib", model.weight_bytes / 2**30) * 2**30)
    total = table()["parameters"].get(model.architecture, {}).get("all")
    worked_out = total * 1e9 * _bits(model, assumptions) / 8 / 2**30 if total else None
    gib = assumptions.number("weights_gib", worked_out)
    assumptions.note("weights_gib", f"{gib:.0f}")
    return int(gib * 2**30)


def published(model: Model, gpu_name: str, ranks: int, assumptions: Assumptions) -> TimeModel:
    """Constants from the GPU's peaks and the shares of them that were published, or are assumed.

    Args:
        ranks: GPUs over which one pass is split.
    """
    figures, path, assumed = gpu(gpu_name), table()["path"], table()["assumed"]
    linear = assumptions.number("linear_share", assumed["linear_share"])
    bandwidth = assumptions.number("bandwidth_share", assumed["bandwidth_share"])
    pass_ms = assumptions.number("pass_ms", assumed["pass_seconds"] * 1e3)
    decode_ms = assumptions.number("decode_ms", assumed["decode_seconds"] * 1e3)
    for name, value in (
        ("linear_share", linear),
        ("bandwidth_share", bandwidth),
        ("pass_ms", pass_ms),
        ("decode_ms", decode_ms),
    ):
        assumptions.note(name, f"{value:g}")
    active, _ = parameters(model, assumptions)
    bits = _bits(model, assumptions)
    peak = (figures["fp4_tflops"] if bits < 8 else figures["fp8_tflops"] / (1 if bits <= 8 else 2)) * 1e12
    flops_of_pair = 4.0 * model.head_dim * model.q_heads * model.full_layers
    slow = flops_of_pair / (ranks * figures["fp8_tflops"] * 1e12 * path["slow_share"])
    moved = figures["bandwidth_tb"] * 1e12 * bandwidth
    kv_bytes = 2.0 * model.full_layers * model.head_dim * max(model.kv_heads / ranks, 1)
    times = Times(
        pass_=pass_ms / 1e3,
        token=2e9 * active / (ranks * peak * linear),
        pair_fast=slow / path["fast_ratio"],
        pair_slow=slow,
        decode=decode_ms / 1e3 + active * 1e9 * bits / 8 / ranks / moved,
        # Every sequence of a step wakes further experts, until all are read: half of the active weights a sequence.
        row=active * 1e9 * bits / 16 / ranks / moved,
        cached=kv_bytes / moved,
    )
    source = f"published figures of the {gpu_name.upper()} and {path['source']}; {NOT_MEASURED}"
    return TimeModel(times, source, measured=False)


def calibrated(file: Path) -> TimeModel:
    """Constants that ``fastfill plan calibrate`` measured, or that a report of ``fastfill bench ab`` tells.

    Raises:
        UsageError: It is no such file.
    """
    from fastfill.planning import benchreport

    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        if document["schema"] == benchreport.SCHEMA:
            return benchreport.times(document, file)
        if document["schema"] != SCHEMA:
            raise ValueError(f"its schema is {document['schema']}")
        source = f"measured at {document['url']} ({document['model']}) on {document['measured'][:10]}"
        times = constants(document["seconds"])
        return TimeModel(times, source, measured=True, blocking=bool(document["blocking"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"this is no calibration: {error}",
            where=str(file),
            next_step="fastfill plan calibrate --url URL --out FILE, or the report.json of fastfill bench ab",
        ) from None


def constants(seconds: dict[str, float]) -> Times:
    """The time model from its constants by name, as a calibration's file has them."""
    return Times(
        pass_=seconds["pass"],
        token=seconds["token"],
        pair_fast=seconds["pair_fast"],
        pair_slow=seconds["pair_slow"],
        decode=seconds["decode"],
        row=seconds["row"],
        cached=seconds["cached"],
        answer=seconds["answer"],
        ingest=seconds.get("ingest", 0.0),
    )
