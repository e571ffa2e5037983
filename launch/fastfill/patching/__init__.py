"""Apply, check and reverse a quilt-style patch series on an installed SGLang: fuzz 0, all or nothing, idempotent.

Read state (``target``, ``series``, ``state``), decide (``hunks``, ``state``), act (``write``); ``run`` joins them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from fastfill.patching.report import PatchReport


def apply(
    target: Path | None = None,
    series: Path | None = None,
    *,
    python: Path | None = None,
    pristine: Path | None = None,
) -> PatchReport:
    """Apply a series to the SGLang at ``target``; nothing is written unless all of it can be.

    Args:
        target: A site-packages folder, the ``sglang`` package folder, a checkout, a virtual environment or an
            interpreter. None: what the current interpreter imports.
        series: The folder of the series. None: the one that ships for the SGLang version found.
        python: An interpreter to ask instead of ``target``.
        pristine: Unchanged files (a folder or a wheel) to compare an unknown file with.

    Returns:
        The state after applying; ``changed`` is False when it was applied already.

    Raises:
        FastfillError: The target is missing, is another version, was changed by someone else, or cannot be written.
    """
    from fastfill.patching import run as actions

    return actions.apply(target, series, python=python, pristine=pristine)


def reverse(
    target: Path | None = None,
    series: Path | None = None,
    *,
    python: Path | None = None,
    pristine: Path | None = None,
) -> PatchReport:
    """Give the SGLang at ``target`` back the bytes it had; arguments and errors as for :func:`apply`."""
    from fastfill.patching import run as actions

    return actions.reverse(target, series, python=python, pristine=pristine)


def status(target: Path | None = None, series: Path | None = None, *, python: Path | None = None) -> PatchReport:
    """Which patches the SGLang at ``target`` has; a file changed by someone else is a state, not an error."""
    from fastfill.patching import run as actions

    return actions.status(target, series, python=python)
