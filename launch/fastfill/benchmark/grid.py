"""The cells of a benchmark: prompt length, answer length and concurrency, from one line or a file of such lines."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from fastfill.errors import UsageError

_NEXT = 'write --grid "isl=8192,60000 osl=1024,600 conc=4,16", or the path of a file of such lines'
_KEYS = ("isl", "osl", "conc", "prompts")


class Cell(NamedTuple):
    """One load.

    Attributes:
        isl: Prompt length, in tokens.
        osl: Answer length, in tokens.
        conc: Requests under way at once.
        prompts: Requests of one run.
    """

    isl: int
    osl: int
    conc: int
    prompts: int

    @property
    def name(self) -> str:
        """Its name in file names and tables."""
        return f"isl{self.isl}-osl{self.osl}-conc{self.conc}"


def load(text: str) -> list[Cell]:
    """The cells of ``--grid``: the words themselves, or the file that it names.

    Raises:
        UsageError: It is neither, or a cell stands there twice.
    """
    if "=" in text:
        lines = [("--grid", text)]
    else:
        try:
            content = Path(text).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"the grid cannot be read: {error}", where=f"--grid {text}", next_step=_NEXT) from None
        lines = [(f"{text}:{number}", line.partition("#")[0]) for number, line in enumerate(content, 1)]
    cells = [cell for where, line in lines if line.strip() for cell in parse(line, where)]
    names = [cell.name for cell in cells]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(f"the grid has {', '.join(twice)} twice", where=lines[0][0].partition(":")[0], next_step=_NEXT)
    if not cells:
        raise UsageError("the grid has no cell", where=f"--grid {text}", next_step=_NEXT)
    return cells


def parse(line: str, where: str) -> list[Cell]:
    """One line. Prompt and answer lengths go together by position (one of either serves all), each with every
    concurrency; ``prompts`` is the number of requests a run, without it twice the concurrency and at least 4.

    Raises:
        UsageError: A word is not understood, or a number is missing or not above 0.
    """
    found: dict[str, list[int]] = {}
    for word in line.split():
        key, equals, values = word.partition("=")
        if key not in _KEYS or not equals:
            raise UsageError(
                f"{word!r} is no part of a grid; known are {', '.join(_KEYS)}", where=where, next_step=_NEXT
            )
        if key in found:
            raise UsageError(f"{key} is given twice", where=where, next_step=_NEXT)
        found[key] = [_count(key, value, where) for value in values.split(",")]
    if missing := [key for key in _KEYS[:3] if key not in found]:
        raise UsageError(f"the grid does not say {', '.join(missing)}", where=where, next_step=_NEXT)
    prompts = found.get("prompts", [0])
    if len(prompts) != 1:
        raise UsageError("prompts takes one number", where=where, next_step=_NEXT)
    return [
        Cell(isl, osl, conc, prompts[0] or max(4, 2 * conc))
        for isl, osl in _together(found["isl"], found["osl"], where)
        for conc in found["conc"]
    ]


def _together(isl: list[int], osl: list[int], where: str) -> list[tuple[int, int]]:
    longest = max(len(isl), len(osl))
    if len(isl) not in (1, longest) or len(osl) not in (1, longest):
        raise UsageError(
            f"isl has {len(isl)} values and osl {len(osl)}: they go together by position",
            where=where,
            next_step="give equally many of both, or one that serves all",
        )
    return list(zip(isl * (longest // len(isl)), osl * (longest // len(osl)), strict=True))


def _count(key: str, text: str, where: str) -> int:
    # Nine digits are more than any server takes, and keep a typing error from becoming a number of no meaning.
    if not (text.isascii() and text.isdigit()) or len(text) > 9 or int(text) == 0:
        raise UsageError(f"{key}={text or '(nothing)'} is no whole number above 0", where=where, next_step=_NEXT)
    return int(text)
