"""Runs a benchmark: takes the arms in turn, proves each, makes the load, writes down what came of it."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from fastfill import output
from fastfill.benchmark import journal as journals
from fastfill.benchmark import load, measured
from fastfill.benchmark.arms import Arm, Comparison
from fastfill.benchmark.connection import Connection
from fastfill.benchmark.ending import closing
from fastfill.benchmark.grid import Cell
from fastfill.benchmark.hostload import host_load
from fastfill.benchmark.journal import Journal, Unwritable, digest
from fastfill.benchmark.load import Loader
from fastfill.benchmark.proven import Proof
from fastfill.benchmark.schedule import Step, Unit
from fastfill.benchmark.target import Target
from fastfill.errors import FastfillError, NotReadyError
from fastfill.proof.counters import Counters

LEAST_FREE = 64 << 20
"""Bytes of disk below which no run is begun: its raw file, with every token's time, could be cut off."""


class Settings(NamedTuple):
    """What does not change from run to run.

    Attributes:
        tokenizer: The folder or name that the benchmark counts tokens with.
        run_timeout_s: How long one run may take.
        drain_timeout_s: How long the server may take to become idle.
    """

    tokenizer: str
    run_timeout_s: float = 3600.0
    drain_timeout_s: float = 120.0


class Stopped(NotReadyError):
    """Nothing further can be measured now."""


class Bench:
    """One benchmark under way.

    Args:
        comparison: The arms.
        units: What to run, in order.
        journal: What was run already, and where to write down the rest.
        target: The server.
        connection: The same server, to read.
        loader: The load.
        prove: Sends a proof to the server.
    """

    def __init__(
        self,
        comparison: Comparison,
        units: list[Unit],
        journal: Journal,
        target: Target,
        connection: Connection,
        loader: Loader,
        prove: Callable[[Arm], Proof],
        settings: Settings,
    ) -> None:
        self._comparison = comparison
        self._units = units
        self._journal = journal
        self._target = target
        self._connection = connection
        self._loader = loader
        self._prove = prove
        self._settings = settings
        self._proven: dict[str, Proof] = {}
        self._warm: set[tuple[str, str]] = set()

    def run(self) -> str:
        """Everything that is left to run.

        Returns:
            Why it stopped before the end; empty where it did not.

        Raises:
            Unwritable: The disk is full, or the folder is not ours.
        """
        done = self._journal.finished()
        self._journal.add("started", pid=os.getpid(), load=host_load(), left=len(self._units) - len(done))
        try:
            with closing(self._loader.stop, self._target.close):
                self._left(done)
        except (Unwritable, OSError) as error:
            full = error if isinstance(error, Unwritable) else journals.unwritable(error, self._journal.folder)
            # Room for one line there may be, for the report to say so.
            with contextlib.suppress(Unwritable):
                self._journal.add("stopped", why=full.what)
            raise full from error
        except FastfillError as error:
            why = f"{error.what} ({error.where})" if error.where else error.what
            self._journal.add("stopped", why=why)
            output.talk("\n".join(error.lines()))
            return why
        except KeyboardInterrupt:
            self._journal.add("interrupted", why="Ctrl-C, or SIGTERM")
            raise
        self._journal.add("ended", load=host_load())
        return ""

    def _left(self, done: set[str]) -> None:
        for number, unit in enumerate(self._units, 1):
            if unit.name not in done:
                output.talk(f"bench: {unit.name} ({number} of {len(self._units)})")
                self._unit(unit)

    def _unit(self, unit: Unit) -> None:
        attempt = self._journal.attempt(unit.name)
        if attempt:
            self._journal.add("interrupted", unit=unit.name, why="it was begun before and not finished: from its start")
        self._journal.add("begun", unit=unit.name, attempt=attempt)
        for step in unit.steps:
            self._step(unit, step, attempt)
        self._journal.add("unit", unit=unit.name)

    def _step(self, unit: Unit, step: Step, attempt: int) -> None:
        arm = self._comparison.arm(step.arm)
        proof = self._take(arm)
        if misfit := proof.misfit(step.cell):
            self._result(unit, step, attempt, void=[misfit])
            return
        if not proof.holds:
            raise Stopped(f"arm {arm.name} is not what it should be: {proof.why}")
        if (step.cell.name, arm.name) not in self._warm:
            words = self._load(
                step.cell, seed=0, file=self._path(f"warmup-{step.cell.name}-{arm.name}-{time.time_ns()}")
            )
            self._journal.add("warmup", cell=step.cell.name, arm=arm.name, why=words)
            self._warm.add((step.cell.name, arm.name))
        self._measure(unit, step, attempt, arm)

    def _take(self, arm: Arm) -> Proof:
        """The arm, drained, proven once after each start of the server."""
        if self._target.take(arm):
            self._proven.clear()
            self._warm.clear()
        self._connection.drain(self._settings.drain_timeout_s)
        if arm.name not in self._proven:
            proof = self._prove(arm)
            self._journal.add(
                "proof", arm=arm.name, holds=proof.holds, why=proof.why, about=proof.about, document=proof.document
            )
            self._proven[arm.name] = proof
            self._connection.drain(self._settings.drain_timeout_s)
        return self._proven[arm.name]

    def _measure(self, unit: Unit, step: Step, attempt: int, arm: Arm) -> None:
        suffix = f"-again{attempt}" if attempt else ""
        file = self._path(step.name + suffix)
        before = self._counters()
        loaded, began = host_load(), time.time()
        why = self._load(step.cell, seed=step.seed, file=file)
        ended = time.time()
        void = [why] if why else []
        found: measured.Run | None = None
        if not why:
            try:
                found = measured.read(file.read_text(encoding="utf-8"), step.cell)
            except (OSError, ValueError) as error:
                self._require_room()
                void.append(f"the benchmark's file cannot be read: {error}")
        whole = found is not None and found.completed == found.asked
        # Where requests failed, a look at a page is not enough: SGLang's launcher outlives its schedulers for a while.
        alive = self._connection.alive() if whole else self._connection.ready()
        if not alive:
            void.append("the server died")
        if found is not None and alive:
            after = self._counters()
            if before is not None and after is not None:
                found = measured.with_counters(found, before, after, step.cell)
            void += measured.objections(found, fires=arm.fires)
        self._result(unit, step, attempt, void=void, file=file, run=found, began=began, ended=ended, load=loaded)
        if not alive and self._comparison.switch == "path":
            raise Stopped(f"the server at {self._target.url} died during {step.name}")

    def _counters(self) -> Counters | None:
        """None where there are none, also because the server has just died: the run is void then, and says so."""
        try:
            return self._connection.visit(lambda server: server.counters())
        except FastfillError:
            return None

    def _result(
        self,
        unit: Unit,
        step: Step,
        attempt: int,
        *,
        void: list[str],
        file: Path | None = None,
        run: measured.Run | None = None,
        **fields: Any,
    ) -> None:
        if void:
            output.talk(f"bench: {step.name}: void: {'; '.join(void)}")
        if file is not None and file.exists():
            # What is finished is not written again, by anyone.
            file.chmod(0o444)
        self._journal.add(
            "run",
            unit=unit.name,
            step=step.name,
            cell=step.cell.name,
            kind=step.kind,
            block=step.block,
            side=step.side,
            arm=step.arm,
            attempt=attempt,
            void=void,
            file=None if file is None else str(file.relative_to(self._journal.folder)),
            sha256=None if file is None else digest(file),
            run=None if run is None else run.model_dump(),
            **fields,
        )

    def _path(self, name: str) -> Path:
        return self._journal.folder / "raw" / f"{name}.jsonl"

    def _load(self, cell: Cell, *, seed: int, file: Path) -> str:
        self._require_room()
        # The benchmark appends: what a run that was cut off has left there is not this run's.
        file.unlink(missing_ok=True)
        words = load.arguments(cell, url=self._target.url, seed=seed, file=file, tokenizer=self._settings.tokenizer)
        return self._loader.run(words, self._settings.run_timeout_s)

    def _require_room(self) -> None:
        if shutil.disk_usage(self._journal.folder).free < LEAST_FREE:
            raise journals.unwritable(OSError(errno.ENOSPC, "No space left on device"), self._journal.folder)
