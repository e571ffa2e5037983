"""What a trace, a config or a published figure does not tell: named assumptions, printed with the result."""

from __future__ import annotations

from typing import NamedTuple

from fastfill.errors import UsageError


class Assumption(NamedTuple):
    """One assumption.

    Attributes:
        default: Its value where none is given; "" means that it is worked out.
        meaning: In one line.
    """

    default: str
    meaning: str


KNOWN: dict[str, Assumption] = {
    "max_new_tokens": Assumption("answered", "what clients ask for at most, in tokens; `answered`: what they got"),
    "ignore_eos": Assumption("no", "whether clients set ignore_eos: benchmarks do, production does not"),
    "clients": Assumption("16", "how many clients send, each its next request when the last is answered"),
    "hash_block": Assumption("512", "tokens that one of the trace's prefix hashes stands for"),
    "time_unit": Assumption("ms", "unit of the trace's timestamps: ms or s"),
    "answers_shared": Assumption("no", "later prompts find no earlier answer in the cache, only earlier prompts"),
    "max_running": Assumption("", "--max-running-requests as SGLang works it out"),
    "kv_tokens": Assumption("", "size of the KV pool of one rank, in tokens, from memory and weights"),
    "weights_gib": Assumption("", "weights on all GPUs together, in GiB"),
    "active_parameters": Assumption("", "parameters that one token uses, in 10^9"),
    "weight_bits": Assumption("", "bits a weight"),
    "linear_share": Assumption("", "share of the matrix peak that linear layers reach in prefill"),
    "bandwidth_share": Assumption("", "share of the memory bandwidth that decode reaches"),
    "pass_ms": Assumption("", "what a prefill pass costs before its first token, in ms"),
    "decode_ms": Assumption("", "what a decode step costs before its first sequence, in ms"),
}


class Assumptions:
    """The values given with ``--assume``, and which of all were used."""

    def __init__(self, given: list[str]) -> None:
        self._given: dict[str, str] = {}
        self.used: dict[str, str] = {}
        for word in given:
            name, equals, value = word.partition("=")
            if name not in KNOWN or not equals or not value:
                names = "\n".join(f"{key}={known.default or '...'}: {known.meaning}" for key, known in KNOWN.items())
                raise UsageError("this is no assumption", where=f"--assume {word}", detail=names)
            self._given[name] = value

    def text(self, name: str, choices: tuple[str, ...] = ()) -> str:
        """A value; it counts as used from now on."""
        value = self._given.get(name, KNOWN[name].default)
        if choices and value not in choices:
            raise UsageError(f"{value} is none of {', '.join(choices)}", where=f"--assume {name}={value}")
        self.used[name] = value
        return value

    def number(self, name: str, worked_out: float | None = None) -> float:
        """A positive number; ``worked_out`` where none was given, and then it does not count as assumed.

        Raises:
            UsageError: It is none, or none was given and nothing could be worked out.
        """
        text = self._given.get(name, KNOWN[name].default if worked_out is None else "")
        if not text and worked_out is not None:
            return worked_out
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if value <= 0:
            raise UsageError(
                f"{name} is not known" if not text else f"{text} is no positive number",
                where=f"--assume {name}={text or 'N'}",
                next_step=f"give it: {KNOWN[name].meaning}",
            )
        self.used[name] = text
        return value

    def note(self, name: str, value: str) -> None:
        """A value that was taken though nobody measured it."""
        self.used.setdefault(name, value)
