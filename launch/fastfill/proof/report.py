"""A proof for people: one line a check on stderr as it happens, then the table and the verdict on stdout."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from fastfill import output
from fastfill.proof.document import ProveDocument, RankPart

_MARKS = {"ok": "ok", "fail": "FAIL", "note": "--", "retry": "again"}
_HEADER = ("rank", "pid", "passes", "expected", "observed", "reasons")


class Lines:
    """One plain line a check: pipes, files, NO_COLOR."""

    def check(self, name: str, outcome: str, detail: str) -> None:
        """Print a finished check to stderr."""
        output.talk(f"{_MARKS[outcome]:<6}{name}: {detail}")

    def working(self, what: str) -> AbstractContextManager[object]:
        """Nothing to see before it is done."""
        return _silent(what)


class Spinner(Lines):
    """The same lines, with a spinner while something takes a while."""

    def working(self, what: str) -> AbstractContextManager[object]:
        """Spin on stderr."""
        from rich.console import Console

        return Console(stderr=True).status(what)


@contextmanager
def _silent(_: str) -> Iterator[None]:
    yield


def talker() -> Lines:
    """The talk that fits stderr."""
    return Spinner() if output.is_terminal() and _fancy() else Lines()


def show(document: ProveDocument) -> None:
    """Print the table, the verdict, its reason and fix, and the next step to stdout."""
    import sys

    if document.ranks:
        if output.is_terminal(sys.stdout) and _fancy():
            _rich_table(document.ranks)
        else:
            output.data(plain_table(document.ranks))
    for line in conclusion(document):
        output.data(line)


def conclusion(document: ProveDocument) -> list[str]:
    """The lines below the table."""
    lines = [f"{document.verdict}: {document.summary}"]
    if document.reason is not None:
        seen = f" (here: {document.reason.seen})" if document.reason.seen else ""
        lines.append(f"  reason:   {document.reason.id}: {document.reason.meaning}{seen}")
        lines.append(f"  fix:      {document.reason.fix}")
    if document.unseen:
        lines.append(f"  unseen:   {', '.join(map(str, document.unseen))}: never reported, not known to fire")
    for rank in document.ranks:
        if rank.draft is not None:
            counted = f"{rank.draft.observed_calls} of {rank.draft.expected_calls}"
            lines.append(f"  draft:    {rank.rank}: {counted} calls of the draft model")
    lines.append(f"  control:  {document.control.status}: {document.control.detail}")
    lines.append(f"  answers:  {document.answers.status}: {document.answers.detail}")
    for witness in document.witnesses:
        lines.append(f"  {witness.witness + ':':<10}{witness.says}: {witness.detail}")
    share = document.coverage
    if share.attention_work is not None and share.tokens is not None:
        lines.append(
            f"  coverage: {share.attention_work:.1%} of the attention work, {share.tokens:.1%} of the prefill tokens, "
            "since the server started"
        )
        if share.stopped:
            lines.append(f"            left the path, by attention work: {_stopped(share.stopped)}")
    if share.load is not None and share.load.attention_work is not None and share.load.tokens is not None:
        lines.append(
            f"  load:     {share.load.attention_work:.1%} of the attention work, "
            f"{share.load.tokens:.1%} of the prefill tokens: {share.load.prompts} prompts of "
            f"{share.load.prompt_tokens} at once, in {share.load.passes} pass(es)"
        )
        if share.load.stopped:
            lines.append(f"            left the path, by attention work: {_stopped(share.load.stopped)}")
    lines += [f"  note:     {note}" for note in document.notes]
    if document.evidence is not None:
        how = "replayed from" if document.evidence.replayed else "in"
        lines.append(f"  evidence: {how} {document.evidence.folder}, manifest {document.evidence.manifest_sha256}")
    lines.append(f"  next:     {document.next_step}")
    return lines


def _stopped(shares: dict[str, float]) -> str:
    return ", ".join(f"{_words(reason)} {part:.1%}" for reason, part in shares.items())


def _words(reason: str) -> str:
    return f"{reason} (controls of proofs)" if reason == "forced_fallback" else reason


def rows(ranks: list[RankPart]) -> list[tuple[str, ...]]:
    """The table's cells, header apart."""
    return [
        (
            str(one.rank),
            str(one.pid),
            str(one.passes),
            str(one.expected_calls),
            str(one.observed_calls),
            ", ".join(f"{id} {count}" for id, count in one.reasons.items()) or "-",
        )
        for one in ranks
    ]


def plain_table(ranks: list[RankPart]) -> str:
    """Columns of text, two spaces apart."""
    lines = [_HEADER, *rows(ranks)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEADER))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _rich_table(ranks: list[RankPart]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(*_HEADER)
    for row in rows(ranks):
        table.add_row(*row)
    Console().print(table)


def _fancy() -> bool:
    return "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
