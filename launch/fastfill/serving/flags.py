"""SGLang's command-line flags as data: names in one spelling, values as the words that follow them."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import NamedTuple

from fastfill.errors import UsageError
from fastfill.serving.profile import FlagValue

ALIASES = {
    "model": "model-path",
    "tensor-parallel-size": "tp-size",
    "pipeline-parallel-size": "pp-size",
    "data-parallel-size": "dp-size",
    "attention-context-parallel-size": "attn-cp-size",
    "cuda-graph-max-bs": "cuda-graph-max-bs-decode",
    "enable-prefill-context-parallel": "enable-prefill-cp",
    "enable-nsa-prefill-context-parallel": "enable-prefill-cp",
    "enable-dsa-prefill-context-parallel": "enable-prefill-cp",
}
"""Other spellings that SGLang takes (0.5.16 server_args.py: ``aliases=`` and the deprecated names)."""

KNOWN = (
    "admin-api-key", "api-key", "attention-backend", "attn-cp-size", "chunked-prefill-size", "config",
    "context-length", "cuda-graph-backend-prefill", "cuda-graph-config", "cuda-graph-max-bs-decode",
    "decode-attention-backend", "disable-radix-cache", "disaggregation-mode", "dp-size", "enable-dp-attention",
    "enable-metrics", "enable-mixed-chunk", "enable-prefill-cp", "host", "kv-cache-dtype", "language-only",
    "max-prefill-tokens", "mem-fraction-static", "model-path", "nnodes", "page-size", "port", "pp-size",
    "prefill-attention-backend", "speculative-algorithm", "tp-size",
)  # fmt: skip
"""The flags that something here looks at. Python's argparse also takes any unambiguous beginning of one."""

_SECRET = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL)", re.IGNORECASE)
_NOT_SECRET = re.compile(r"(tokenizer|tokens|token-map|^enable-|^disable-|keyfile$)", re.IGNORECASE)
REDACTED = "(redacted)"
_SCALE = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


class Flag(NamedTuple):
    """One flag as it was given.

    Attributes:
        name: The canonical name, without dashes.
        values: The words that follow it; none for a bare flag.
        words: The words of the command line, unchanged.
    """

    name: str
    values: tuple[str, ...]
    words: tuple[str, ...]


def canonical(name: str) -> str:
    """One spelling for a flag's name; an unambiguous beginning of a known flag counts as that flag."""
    name = name.lstrip("-").replace("_", "-")
    if name in ALIASES:
        return ALIASES[name]
    if name in KNOWN:
        return name
    longer = [known for known in KNOWN if known.startswith(name)]
    return longer[0] if len(longer) == 1 else name


def parse(words: list[str]) -> list[Flag]:
    """Split the words after ``--`` into flags.

    Raises:
        UsageError: A word belongs to no flag.
    """
    flags: list[Flag] = []
    for word in words:
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word.partition("=")
            flags.append(Flag(canonical(name), (value,) if equals else (), (word,)))
        elif flags and not flags[-1].words[0].count("="):
            last = flags[-1]
            flags[-1] = Flag(last.name, (*last.values, word), (*last.words, word))
        else:
            raise UsageError(
                f"{word!r} belongs to no SGLang flag", where="the arguments after --", next_step="write --flag value"
            )
    return flags


def from_profile(name: str, value: FlagValue) -> Flag | None:
    """A profile's flag as words of the command line; None for a flag that is switched off."""
    if value is False:
        return None
    values = () if value is True else tuple(value) if isinstance(value, list) else (str(value),)
    return Flag(canonical(name), values, (f"--{name}", *values))


def number(text: str) -> int | None:
    """A count as SGLang reads it: plain, or with a suffix (64k = 64000, 64Ki = 65536); None when it is neither."""
    match = re.fullmatch(r"(-?\d+(?:\.\d+)?)(Ki|Mi|Gi|Ti|k|M|G|T|)", text.strip())
    if match is None:
        return None
    digits, suffix = match.groups()
    if "." in digits and suffix not in ("k", "M", "G", "T"):
        return None
    return int(Decimal(digits) * _SCALE[suffix])


def is_secret(name: str) -> bool:
    """Whether a flag or an environment variable of this name holds something that must not be shown."""
    return bool(_SECRET.search(name)) and not _NOT_SECRET.search(name)


def redact(argv: list[str]) -> list[str]:
    """The command line with the values of secret flags replaced."""
    shown: list[str] = []
    hide = False
    for word in argv:
        if word.startswith("--"):
            name, equals, _ = word.partition("=")
            hide = is_secret(name.lstrip("-"))
            shown.append(f"{name}={REDACTED}" if hide and equals else word)
        else:
            shown.append(REDACTED if hide else word)
    return shown


def redact_env(env: dict[str, str]) -> dict[str, str]:
    """The environment with the values of secret variables replaced."""
    return {name: REDACTED if is_secret(name) else value for name, value in env.items()}
