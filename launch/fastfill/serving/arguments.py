"""Whether SGLang has a flag of that name: each release's argument names, and the nearest one to a misspelt name.

``arguments/<release>.txt`` is what ``bench/sglang_arguments.py`` reads from the release's own parser.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from fastfill.errors import UsageError

_FOLDER = Path(__file__).resolve().parent / "arguments"
_NEAR, _SHOWN = 0.7, 3


class Misspelt(NamedTuple):
    """A flag that SGLang would refuse.

    Attributes:
        flag: As it was given, with its dashes.
        meant: The names that are nearest, the best first; or those between which an abbreviation cannot decide.
        ambiguous: Whether it is the beginning of several names.
    """

    flag: str
    meant: tuple[str, ...]
    ambiguous: bool = False

    def says(self, whose: str) -> str:
        """In one sentence; ``whose``: SGLang and its release."""
        what = f"{self.flag} could be any of several" if self.ambiguous else f"{whose} has no {self.flag}"
        return f"{what}: did you mean {' or '.join(self.meant)}?" if self.meant else what


def releases() -> list[str]:
    """The releases whose arguments are known, the oldest first."""
    return sorted((file.stem for file in _FOLDER.glob("*.txt")), key=lambda name: [int(n) for n in name.split(".")])


@lru_cache(maxsize=8)
def known(release: str) -> dict[str, str] | None:
    """Every spelling of a release's arguments, with the first spelling of the same argument; None if not known."""
    file = _FOLDER / f"{release}.txt"
    if "/" in release or not file.is_file():
        return None
    lines = (line.split() for line in file.read_text(encoding="utf-8").splitlines())
    return {spelling: spellings[0] for spellings in lines for spelling in spellings}


def misspelt(words: Iterable[str], release: str) -> list[Misspelt]:
    """The flags among the words of a command line that a release's parser would not take.

    Args:
        words: Values are among them; a flag begins with two dashes, and may hold its value after ``=``.
        release: SGLang's version; "" for any that is known. Nothing is misspelt in a release that is not known.
    """
    names = (_anyone() if not release else known(release)) or {}
    given = dict.fromkeys(word.partition("=")[0] for word in words if word.startswith("--") and len(word) > 2)
    return [found for flag in given if (found := _judge(flag, names)) is not None] if names else []


def whose(release: str) -> str:
    """SGLang and its release, as a message names them."""
    return f"SGLang {release}" if release else f"SGLang ({releases()[0]} to {releases()[-1]})"


def unchecked(release: str) -> str:
    """What to say where the flags of a release cannot be checked; "" where they can."""
    if not release or known(release) is not None:
        return ""
    return f"the arguments of SGLang {release} are not known here: the names of its flags are not checked"


def require(words: Iterable[str], release: str, where: str) -> None:
    """Refuse misspelt flags.

    Raises:
        UsageError: There are some; each is named with what was probably meant.
    """
    found = misspelt(words, release)
    if found:
        raise UsageError(
            found[0].says(whose(release)),
            where=where,
            detail="\n".join(one.says(whose(release)) for one in found[1:]),
            next_step="correct it" if found[0].meant else f"leave out {found[0].flag}",
        )


@lru_cache(maxsize=1)
def _anyone() -> dict[str, str]:
    found: dict[str, str] = {}
    for release in releases():
        found |= known(release) or {}
    return found


def _judge(flag: str, names: dict[str, str]) -> Misspelt | None:
    """Python's parser takes a name, or any beginning that only one argument's names have."""
    if flag in names:
        return None
    longer = sorted(name for name in names if name.startswith(flag))
    if len({names[name] for name in longer}) == 1:
        return None
    if longer:
        return Misspelt(flag, tuple(longer[:_SHOWN]), ambiguous=True)
    near = difflib.get_close_matches(flag.replace("_", "-"), names, n=_SHOWN, cutoff=_NEAR)
    best = [name for name in near if _likeness(flag, name) > _likeness(flag, near[0]) - 0.05]
    return Misspelt(flag, tuple(best))


def _likeness(flag: str, name: str) -> float:
    return difflib.SequenceMatcher(None, flag.replace("_", "-"), name).ratio()
