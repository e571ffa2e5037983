"""Shows on a terminal which candidate is being tried."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fastfill import output
from fastfill.planning.candidate import Candidate


def steps(candidates: Sequence[Candidate]) -> Iterator[Candidate]:
    """The candidates, with a bar on stderr if that is a terminal."""
    if not output.is_terminal():
        yield from candidates
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(candidates, "plan: candidates", console=Console(stderr=True), transient=True)
