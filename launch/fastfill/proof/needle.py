"""Prompts that hide needles, in a trained model's token ids or in plain words. Pure: randomness comes in."""

from __future__ import annotations

import random
from typing import NamedTuple

from fastfill.proof.answers_seen import Hidden
from fastfill.proof.wire import Retrieval

DEPTHS = (0.02, 0.25, 0.5, 0.75, 0.97)
"""Where the needles are, as shares of the prompt's length: an attention fault may spare the start or the end."""
CROWD = 3
"""Keys side by side around a needle: a kernel that looks at the wrong neighbour answers with another's value."""

_COLOURS = ("blue", "red", "green", "white", "yellow")
_SUBJECTS = ("gardener", "teacher", "baker", "sailor", "painter", "farmer", "doctor", "miller")
_ACTS = ("walked along the river", "repaired an old chair", "read a long letter", "waited for the train")
_TIMES = ("in the morning", "before noon", "after lunch", "in the evening", "on a rainy day")


class TokenPrompt(NamedTuple):
    """A prompt as token ids, and what it hides."""

    ids: list[int]
    hidden: Hidden


class TextPrompt(NamedTuple):
    """A prompt as text, and what it hides."""

    text: str
    hidden: tuple[Hidden, ...]


def token_prompt(task: Retrieval, length: int, depth: float, chance: random.Random) -> TokenPrompt:
    """``length`` tokens of filler with a crowd of keys and values at every depth, ending with one key of ``depth``."""
    ids = [chance.randrange(*task.filler) for _ in range(length - 1)]
    keys = chance.sample(range(*task.keys), CROWD * len(DEPTHS))
    values = chance.sample(range(*task.values), CROWD * len(DEPTHS))
    pairs = list(zip(keys, values, strict=True))
    for index, place in enumerate(DEPTHS):
        crowd = pairs[index * CROWD : (index + 1) * CROWD]
        start = round(place * (length - 2 - 2 * CROWD))
        for offset, (key, value) in enumerate(crowd):
            ids[start + 2 * offset : start + 2 * offset + 2] = [key, value]
    key, value = pairs[DEPTHS.index(depth) * CROWD + chance.randrange(CROWD)]
    return TokenPrompt([*ids, key], Hidden(depth=depth, wanted=str(value)))


def shortest_token_prompt() -> int:
    """The fewest tokens that hold a crowd at every depth without overlap."""
    return 2 * CROWD * 12


def text_prompt(characters: int, chance: random.Random) -> TextPrompt:
    """About ``characters`` of plain English with five codes in it, and a question for all of them."""
    codes = [str(number) for number in chance.sample(range(1000, 10_000), len(DEPTHS))]
    question = (
        f"What are the codes of the {', '.join(_COLOURS[:-1])} and {_COLOURS[-1]} gates, in this order? "
        "Answer with the five numbers alone, separated by commas."
    )
    room = max(0, characters - len(question))
    parts: list[str] = []
    written, waiting = 0, list(zip(DEPTHS, _COLOURS, codes, strict=True))
    while written < room or waiting:
        if waiting and written >= waiting[0][0] * room:
            _, colour, code = waiting.pop(0)
            sentence = f"The code of the {colour} gate is {code}."
        else:
            sentence = f"The {chance.choice(_SUBJECTS)} {chance.choice(_ACTS)} {chance.choice(_TIMES)}."
        parts.append(sentence)
        written += len(sentence) + 1
    hidden = tuple(Hidden(depth=depth, wanted=code) for depth, code in zip(DEPTHS, codes, strict=True))
    return TextPrompt(f"{' '.join(parts)}\n\n{question}", hidden)
