"""Word problems and their answers: read from a file, and put to a model so that no two prompts share their start."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple

from fastfill.errors import UsageError

SHIPPED = Path(__file__).with_name("questions") / "arithmetic.jsonl"
_FORM = 'give --data a file with {"question": "…", "answer": "72"} a line'
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
_SHOTS = (
    (
        "A jar holds 60 nuts. Rosa takes 14 and Paul takes 9. How many nuts are left?",
        "Rosa and Paul take 14 + 9 = 23 nuts. 60 - 23 = 37 nuts are left. The answer is 37.",
    ),
    (
        "A car needs 6 litres for 100 kilometres. How many litres does it need for 250 kilometres?",
        "250 kilometres are 2.5 times 100 kilometres. 2.5 * 6 = 15 litres. The answer is 15.",
    ),
    (
        "Tickets cost 8 euros, half for children. What do 2 adults and 3 children pay?",
        "Two adults pay 2 * 8 = 16 euros. A child pays 4 euros, three pay 12. 16 + 12 = 28. The answer is 28.",
    ),
    (
        "A worker lays 45 bricks an hour. How many hours does a wall of 315 bricks take?",
        "315 / 45 = 7 hours. The answer is 7.",
    ),
)


class Question(NamedTuple):
    """One question and the number that answers it, as text."""

    question: str
    answer: str


def read(file: Path, limit: int | None = None) -> list[Question]:
    """Questions of a JSON Lines file with the keys ``question`` and ``answer``; of an answer, the number after ``####``
    counts, else its last number.

    Raises:
        UsageError: The file cannot be read, or a line is not of that form.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the questions cannot be read: {error}", where=str(file), next_step=_FORM) from None
    found = [_question(line, f"{file}:{number}") for number, line in enumerate(lines, 1) if line.strip()][:limit]
    if not found:
        raise UsageError("the file holds no question", where=str(file), next_step=_FORM)
    return found


def _question(line: str, where: str) -> Question:
    try:
        value = json.loads(line)
        question, answer = value["question"], str(value["answer"])
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"not a question: {error!r}", where=where, next_step=_FORM) from None
    numbers = _NUMBER.findall(answer.rpartition("####")[2])
    if not isinstance(question, str) or not numbers:
        raise UsageError("the answer holds no number", where=where, next_step=_FORM)
    return Question(question, plain(numbers[-1]))


def plain(number: str) -> str:
    """A number without separators, and without decimals that say nothing."""
    text = number.replace(",", "")
    return text.rstrip("0").rstrip(".") if "." in text else text


def prompt(question: Question, number: int, shots: int = len(_SHOTS)) -> str:
    """The text that is sent.

    It starts with the question's own number: worked examples that all prompts share would be taken from the prefix
    cache from the second prompt on, and a prompt with a cached prefix leaves the path that is to be judged.
    """
    worked = "\n\n".join(f"Question: {asked}\nAnswer: {said}" for asked, said in _SHOTS[:shots])
    return f"{number:05d}. Answer the last question.\n\n{worked}\n\nQuestion: {question.question}\nAnswer:"


def is_right(said: str, wanted: str) -> bool:
    """Whether the number that an answer ends with, before it goes on to another question, is the one that is wanted."""
    own = said.partition("Question:")[0]
    after = own.lower().rpartition("the answer is")[2]
    numbers = _NUMBER.findall(after) or _NUMBER.findall(own)
    # Where the phrase stands, its first number counts: what follows may be the start of something else.
    chosen = numbers[0 if "the answer is" in own.lower() else -1] if numbers else ""
    return plain(chosen) == wanted
