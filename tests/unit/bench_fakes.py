"""A benchmark without a server: what the loop asks of one, answered from a script. The real parts run in tests/lab."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastfill.benchmark import arms, schedule
from fastfill.benchmark.arms import Arm
from fastfill.benchmark.grid import Cell
from fastfill.benchmark.journal import Journal
from fastfill.benchmark.proven import Proof, judge
from fastfill.benchmark.run import Bench, Settings
from fastfill.benchmark.setup import Wish, describe
from fastfill.proof.counters import Counters, Sample
from fastfill.serving.profile import load

CELL = Cell(64, 2, 1, 4)
WISH = Wish(a="off", b="long-context", grid="isl=64 osl=2 conc=1 prompts=4", blocks=3, noise=1, metric="median_ttft_ms",
            url="http://127.0.0.1:1")  # fmt: skip


def raw(cell: Cell, ttft_ms: float, *, failed: int = 0) -> str:
    """A line as the benchmark writes it, its part that we read."""
    good = cell.prompts - failed
    document: dict[str, Any] = {
        "completed": good,
        "errors": [""] * good + ["cut"] * failed,
        "ttfts": [ttft_ms / 1000] * good + [0.0] * failed,
        "input_lens": [cell.isl] * cell.prompts,
        "median_ttft_ms": ttft_ms,
        "median_itl_ms": 5.0,
        "median_e2e_latency_ms": ttft_ms + 10,
        "total_throughput": 100.0,
    }
    return json.dumps(document) + "\n"


class World:
    """Target, connection and loader in one: what was asked of them, and what they answer.

    Attributes:
        arm: The arm that is up.
        loads: Names of the files that were asked for, in order.
        script: Given a file's name and the arm, what the load does: writes, and returns why it failed.
    """

    url = "http://127.0.0.1:1"
    described = "a script"

    def __init__(self) -> None:
        self.arm: Arm | None = None
        self.loads: list[str] = []
        self.lives = True
        self.takes_effect = True
        self.calls = 0
        self.tokens = 0
        self.off_tokens = 0
        self.context = 1024
        self.closed = 0
        self.cells = {CELL.name: CELL}
        self.script: Callable[[str, Path], str] = self.well

    def well(self, name: str, file: Path) -> str:
        """A load that goes well: B at 80 % of A."""
        cell = next(cell for key, cell in self.cells.items() if key in name)
        assert self.arm is not None
        on = self.arm.fires and self.takes_effect
        self.calls += 10 if on else 0
        if on:
            self.tokens += (cell.prompts + 1) * cell.isl
        else:
            self.off_tokens += (cell.prompts + 1) * cell.isl
        # A little noise that is known, so that intervals have a width.
        wobble = 1 + 0.01 * (len(self.loads) % 3)
        file.write_text(raw(cell, (80 if on else 100) * wobble))
        return ""

    def take(self, arm: Arm) -> bool:
        self.arm = arm
        return False

    def close(self) -> None:
        self.closed += 1

    def stop(self) -> None:
        """As a loader."""

    def drain(self, timeout_s: float) -> None:
        """Always idle."""

    def alive(self) -> bool:
        return self.lives

    def ready(self) -> bool:
        return self.lives

    def visit(self, do: object, timeout_s: float = 1.0) -> Counters:
        labels = {"kernel": "asm", "head_dim": "256", "pp_rank": "0", "tp_rank": "0", "dp_rank": "0"}
        off = {**labels, "kernel": "ck", "reason": "operator_off"}
        names = ("fastfill:prefill_tokens_total", "fastfill:prefill_attention_work_total")
        return Counters(
            samples=(
                Sample(name="fastfill:prefill_attention_calls_total", labels=labels, value=self.calls),
                *(Sample(name=name, labels=labels | {"reason": ""}, value=self.tokens) for name in names),
                *(Sample(name=name, labels=off, value=self.off_tokens) for name in names),
            )
        )

    def run(self, words: list[str], timeout_s: float) -> str:
        file = Path(words[words.index("--output-file") + 1])
        if not file.name.startswith("warmup"):
            self.loads.append(file.stem)
        return self.script(file.stem, file)

    def prove(self, arm: Arm) -> Proof:
        on = arm.fires and self.takes_effect
        document = {
            "verdict": "FIRED" if on else "NOT_FIRED",
            "summary": "as the script says",
            "reason": None if on else {"id": "flag_off" if arm.fires else "operator_off"},
            "server": {"sglang": "0.5.16", "model_path": "model", "tp_size": 1},
        }
        return judge(arm, document, self.context)._replace(about={"device": "cpu"})


def bench(folder: Path, world: World, wish: Wish = WISH, cells: list[Cell] | None = None) -> tuple[Bench, Journal]:
    """A benchmark in a folder, begun or gone on with."""
    cells = cells or [CELL]
    world.cells = {cell.name: cell for cell in cells}
    switch = wish.switch if wish.switch in ("path", "restart") else None
    comparison = arms.compare(load(wish.a), load(wish.b), switch=switch, label=wish.label)  # type: ignore[arg-type]
    units = list(schedule.units(cells, blocks=wish.blocks, noise=wish.noise, switch=comparison.switch))
    journal = Journal(folder, describe(wish, comparison, cells))
    parts: Any = world
    return Bench(comparison, units, journal, parts, parts, parts, world.prove, Settings("model", 5.0, 1.0)), journal
