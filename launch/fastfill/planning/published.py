"""Published runs beside the model's answer for them: never fitted to, shown with the difference."""

from __future__ import annotations

from typing import Any, NamedTuple

from fastfill.planning import workload
from fastfill.planning.assumptions import Assumptions
from fastfill.planning.coverage import gate
from fastfill.planning.evaluate import Tried
from fastfill.planning.figures import Model, TimeModel, published, table
from fastfill.planning.rules import Rules, Settings, rules
from fastfill.planning.simulate import Simulation
from fastfill.planning.source import Closed


class Beside(NamedTuple):
    """One published figure and the model's.

    Attributes:
        workload: As ``--workload`` takes it.
        what: ``throughput`` or ``ttft``: on over off.
        published: The published ratio.
        modelled: The model's.
        source: Where it was published.
    """

    workload: str
    what: str
    published: float
    modelled: float
    source: str

    @property
    def agrees(self) -> bool:
        """Whether both say better or both say worse, or both no difference worth speaking of."""
        far = abs(self.published - 1) > 0.02 or abs(self.modelled - 1) > 0.02
        return not far or (self.published - 1) * (self.modelled - 1) > 0


def model() -> Model:
    """The model of the published runs."""
    facts = table()["published"]
    return Model(
        name="Qwen3.5-397B-A17B, MXFP4",
        architecture=facts["architecture"],
        full_layers=facts["full_layers"],
        q_heads=facts["q_heads"],
        kv_heads=facts["kv_heads"],
        head_dim=facts["head_dim"],
        weight_bytes=None,
        quantised=True,
        context=facts["context"],
        hybrid=True,
    )


def times(assumptions: Assumptions) -> TimeModel:
    """Constants from published figures for the published runs' GPUs."""
    facts = table()["published"]
    return published(model(), facts["gpu"], facts["tp"], assumptions)


def beside(release: str, constants: TimeModel) -> list[Beside]:
    """Every published cell, with the path and the flags off and on as they are assumed to have been."""
    found = rules(release)
    rows = []
    for cell in table()["cell"]:
        text = f"isl={cell['isl']},osl={cell['osl']},conc={cell['clients']}"
        off, on = (_run(text, table()["published"][which], which == "on", found, constants) for which in ("off", "on"))
        for what, modelled in (
            ("throughput", on.throughput() / off.throughput()),
            ("ttft", _mean_ttft(on) / _mean_ttft(off)),
        ):
            if f"{what}_ratio" in cell:
                rows.append(Beside(text, what, cell[f"{what}_ratio"], modelled, cell["source"]))
    return rows


def _run(text: str, flags: dict[str, Any], path: bool, found: Rules, constants: TimeModel) -> Tried:
    from fastfill.planning.candidate import Candidate

    facts = table()["published"]
    trace = workload.parse(f"{text},requests={max(3 * int(text.rsplit('=', 1)[1]), 24)}")
    kept = facts["tp"] * 288 * 0.8 - facts["weight_gib"]
    bytes_each = 2 * facts["full_layers"] * facts["head_dim"] * max(facts["kv_heads"] / facts["tp"], 1)
    settings = Settings(
        chunk=flags["chunk"] if flags["chunk"] > 0 else None,
        max_prefill=flags["max_prefill"],
        kv_tokens=int(kept / facts["tp"] * 2**30 / bytes_each) // 16 * 16,
        max_running=2048,
    )
    heads = facts["q_heads"] // facts["tp"]
    simulation = Simulation(found, settings, constants.times, gate(found, path=path, q_heads=heads))
    # The benchmark sets ignore_eos, and people run it with the radix cache off.
    requests = trace.requests(max_new=0, ignore_eos=True, page=16, keyed=False)
    for_benchmark = (_fixed(request) for request in requests)
    outcome = simulation.run(Closed(for_benchmark, trace.clients))
    return Tried(Candidate(flags["chunk"], flags["max_prefill"], False, path), outcome)


def _fixed(request: Any) -> Any:
    request.ignore_eos = True
    return request


def _mean_ttft(one: Tried) -> float:
    assert one.outcome is not None
    return sum(one.outcome.ttft) / max(len(one.outcome.ttft), 1)
