"""The proof as JUnit XML, for CI: one case a check, and never a skipped one.

What the verdict rests on and what was asked for by name is an error where it is not shown. A witness that nobody named,
a control and answers that this server does not allow are no error: the verdict says what it is worth without them.
Their cases begin with "not shown", and the suite's property of that name lists them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal, NamedTuple

from fastfill.errors import UsageError
from fastfill.proof.document import ProveDocument

Outcome = Literal["passed", "failed", "error", "not shown"]


class Case(NamedTuple):
    """One check: passed, failed, in error where it had to be shown and is not, or not shown where it may be missing."""

    name: str
    outcome: Outcome
    detail: str


def cases(document: ProveDocument) -> list[Case]:
    """The checks of a proof, the verdict first."""
    verdict = document.verdict or "no verdict"
    whole: Outcome = "passed" if document.exit_code == 0 else "failed" if document.exit_code == 1 else "error"
    found = [Case("verdict", whole, f"{verdict}: {document.summary}")]
    for rank in document.ranks:
        right = rank.expected_calls == rank.observed_calls > 0
        detail = f"{rank.observed_calls} of {rank.expected_calls} calls; {rank.reasons or 'no reason'}"
        short: Outcome = "error" if document.exit_code == 3 else "failed"
        found.append(Case(f"rank {rank.rank}", "passed" if right else short, detail))
    for witness in document.witnesses:
        outcome: Outcome = {"seen": "passed", "contradicts": "failed"}.get(witness.says, "not shown")  # type: ignore[assignment]
        if outcome == "not shown" and (witness.named or witness.witness == "counters"):
            outcome = "error"
        found.append(Case(f"witness {witness.witness}", outcome, f"{witness.says}: {witness.detail}"))
    states: dict[str, Outcome] = {
        "passed": "passed",
        "not_possible": "not shown",
        "failed": "failed",
    }
    found.append(Case("control", states.get(document.control.status, "error"), document.control.detail))
    answers: dict[str, Outcome] = {
        "right": "passed",
        "cannot_say": "not shown",
        "not_checked": "not shown",
        "wrong": "failed",
    }
    found.append(Case("answers", answers.get(document.answers.status, "error"), document.answers.detail))
    return found


_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _printable(text: str) -> str:
    """A server's words without the characters that XML cannot hold."""
    return _NOT_XML.sub("\ufffd", text)


def write(file: Path, document: ProveDocument) -> None:
    """Write the file.

    Raises:
        UsageError: It cannot be written.
    """
    from junitparser import Error, Failure, JUnitXml, TestCase, TestSuite

    kinds: dict[str, Any] = {"failed": Failure, "error": Error}
    suite = TestSuite("fastfill prove")
    suite.add_property("url", document.url)
    checks = cases(document)
    if missing := [one.name for one in checks if one.outcome == "not shown"]:
        suite.add_property("not shown", ", ".join(missing))
    for name, outcome, detail in checks:
        case = Case(name, outcome, _printable(detail))
        entry = TestCase(case.name, classname="fastfill.prove")
        if case.outcome in kinds:
            result = kinds[case.outcome](case.detail, document.verdict or "none")
            result.text = "\n".join(filter(None, (case.detail, _printable(document.next_step or ""))))
            entry.result = [result]
        else:
            entry.system_out = case.detail if case.outcome == "passed" else f"not shown: {case.detail}"
        suite.add_testcase(entry)
    suite.time = document.elapsed_s
    xml = JUnitXml()
    xml.add_testsuite(suite)
    try:
        xml.write(str(file), pretty=True)
    except OSError as error:
        raise UsageError(
            f"the JUnit file cannot be written: {error.strerror}", where=str(file), next_step="give another --junit"
        ) from error
