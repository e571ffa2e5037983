"""In which order the runs are made: A B B A, so that an even drift falls out, and A against itself between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from fastfill.benchmark.arms import ArmName, Switch
from fastfill.benchmark.grid import Cell

Kind = Literal["ab", "aa"]
Side = Literal["left", "right"]
SIDES: tuple[Side, ...] = ("left", "right", "right", "left")


class Step(NamedTuple):
    """One run of the load.

    Attributes:
        block: The block it belongs to, from 1, counted for each kind.
        kind: ``ab`` compares the arms; ``aa`` arm A with itself, for the noise.
        position: 0 to 3.
    """

    cell: Cell
    kind: Kind
    block: int
    position: int

    @property
    def side(self) -> Side:
        """Left is A; right is B, or A again in a block of noise."""
        return SIDES[self.position]

    @property
    def arm(self) -> ArmName:
        """The arm that serves it."""
        return "B" if self.kind == "ab" and self.side == "right" else "A"

    @property
    def name(self) -> str:
        """Its name in the journal and of its raw file."""
        return f"{self.cell.name}-{self.kind}{self.block:03d}-{self.position}{self.arm}"

    @property
    def seed(self) -> int:
        """Of the prompts: the same for the two runs that make a pair, another one for every pair."""
        pair = 0 if self.position in (0, 1) else 1
        return 1 + 4 * self.block + 2 * (self.kind == "aa") + pair


class Unit(NamedTuple):
    """Runs that are only worth something together: interrupted, they are made again from the first."""

    name: str
    steps: tuple[Step, ...]


def units(cells: list[Cell], *, blocks: int, noise: int, switch: Switch) -> Iterator[Unit]:
    """All runs, in order, the blocks of noise spread evenly.

    Where arms change without a restart, a cell's four runs follow each other. Where they cost a restart, all cells of
    one arm are run before the next: two restarts a block, however many cells there are.
    """
    for kind, block in _order(blocks, noise):
        if switch == "path":
            for cell in cells:
                yield Unit(f"{kind}{block:03d}-{cell.name}", tuple(Step(cell, kind, block, at) for at in range(4)))
        else:
            steps = tuple(Step(cell, kind, block, at) for at in range(4) for cell in cells)
            yield Unit(f"{kind}{block:03d}", steps)


def _order(blocks: int, noise: int) -> list[tuple[Kind, int]]:
    marked: list[tuple[float, Kind, int]] = [(number / blocks, "ab", number) for number in range(1, blocks + 1)]
    marked += [((number - 0.5) / noise, "aa", number) for number in range(1, noise + 1)]
    return [(kind, number) for _, kind, number in sorted(marked)]
