"""Candidates: the flags that are tried, from the command line or as a grid around the trace's own lengths."""

from __future__ import annotations

from typing import NamedTuple

from fastfill.errors import UsageError

UPSTREAM = (("65536", 65536, 65536), ("-1 with 65536", -1, 65536))
"""Upstream's advice: a chunk of 65536, or none with max-prefill-tokens 65536."""
DEFAULT_CHUNK = 16384


class Candidate(NamedTuple):
    """One setting.

    Attributes:
        chunk: --chunked-prefill-size; -1 is off.
        max_prefill: --max-prefill-tokens.
        radix: Whether prefixes are cached.
        path: Whether the fast path is switched on.
    """

    chunk: int
    max_prefill: int
    radix: bool
    path: bool

    def flags(self) -> list[str]:
        """As words of SGLang's command line."""
        words = ["--chunked-prefill-size", str(self.chunk), "--max-prefill-tokens", str(self.max_prefill)]
        return words if self.radix else [*words, "--disable-radix-cache"]

    def name(self) -> str:
        """In one short line, as ``--candidate`` takes it."""
        radix, path = "on" if self.radix else "off", "on" if self.path else "off"
        return f"chunk={self.chunk},max_prefill={self.max_prefill},radix={radix},path={path}"


def parse(text: str, *, longest: int, radix: bool, page: int) -> Candidate:
    """``chunk=-1,max_prefill=65536[,radix=off][,path=on]``.

    Args:
        longest: max_prefill where none is said and chunking is off; else SGLang's 16384.
        radix: Where it is not said.
        page: The chunk must be a multiple of it.

    Raises:
        UsageError: A part is unknown or its value makes no sense.
    """
    values: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = part.strip().partition("=")
        if key not in ("chunk", "max_prefill", "radix", "path") or not equals:
            raise UsageError(
                f"{part.strip()!r} is no part of a candidate",
                where=f"--candidate {text}",
                next_step="write --candidate chunk=-1,max_prefill=65536,radix=off,path=on",
            )
        values[key] = value
    for key in ("radix", "path"):
        if values.get(key, "on") not in ("on", "off"):
            raise UsageError(f"{key} is on or off", where=f"--candidate {text}")
    try:
        chunk = int(values.get("chunk", "-1"))
        most = int(values.get("max_prefill", longest if chunk <= 0 else max(DEFAULT_CHUNK, chunk)))
    except ValueError:
        raise UsageError("chunk and max_prefill are whole numbers", where=f"--candidate {text}") from None
    if most < 1:
        raise UsageError("max_prefill must be at least 1", where=f"--candidate {text}")
    if chunk > 0 and chunk % page:
        raise UsageError(
            f"SGLang refuses a chunk of {chunk}: it is no multiple of the page size {page}",
            where=f"--candidate {text}",
        )
    return Candidate(
        chunk if chunk > 0 else -1,
        most,
        values["radix"] == "on" if "radix" in values else radix,
        values.get("path", "on") == "on",
    )


def grid(longest: int, *, radix: tuple[bool, ...], page: int) -> list[Candidate]:
    """Chunk x max-prefill-tokens x radix x path around a trace's longest prompt, upstream's advice always among them.

    Args:
        longest: The longest prompt, in tokens.
        radix: Which of on and off are tried.
    """
    size = max(512, page)
    while size < longest:
        size *= 2
    sizes = [max(size >> shift, 256, page) for shift in (3, 2, 1, 0)]
    chunks = sorted({*sizes, DEFAULT_CHUNK, 65536} if longest > 4096 else {*sizes, 65536})
    budgets = sorted({*sizes, DEFAULT_CHUNK, 65536} if longest > 4096 else {*sizes, 65536})
    found: list[Candidate] = []
    for cached in radix:
        found += [Candidate(chunk, max(chunk, DEFAULT_CHUNK), cached, True) for chunk in chunks]
        found += [Candidate(-1, budget, cached, True) for budget in budgets]
        found += [Candidate(DEFAULT_CHUNK, DEFAULT_CHUNK, cached, False), Candidate(-1, 65536, cached, False)]
    return found
