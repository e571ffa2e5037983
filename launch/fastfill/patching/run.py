"""The four actions: locate, inspect, decide, and (apply, reverse) write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal, cast

from fastfill.errors import FastfillError, UsageError
from fastfill.patching.differ import explain
from fastfill.patching.hunks import HunkError
from fastfill.patching.report import FileLine, Overall, PatchLine, PatchReport
from fastfill.patching.series import Series, choose, folder_for
from fastfill.patching.state import FileState, inspect, overall, sha256, touching, with_patches
from fastfill.patching.target import Installation, locate
from fastfill.patching.write import exclusive, replace_all

Action = Literal["apply", "check", "reverse", "status"]


def apply(
    target: Path | None, series: Path | None, *, python: Path | None = None, pristine: Path | None = None
) -> PatchReport:
    """See :func:`fastfill.patching.apply`."""
    return _change("apply", target, series, python, pristine, lambda state: state.total)


def reverse(
    target: Path | None, series: Path | None, *, python: Path | None = None, pristine: Path | None = None
) -> PatchReport:
    """See :func:`fastfill.patching.reverse`."""
    return _change("reverse", target, series, python, pristine, lambda state: 0)


def check(
    target: Path | None, series: Path | None, *, python: Path | None = None, pristine: Path | None = None
) -> PatchReport:
    """The state of the target, which is ``applied``, ``not_applied`` or ``partial``: anything else is an error."""
    found = locate(target, python)
    chosen = _choose(found, series)
    states = _inspect(found, chosen)
    _refuse_unknown(found, chosen, states, pristine)
    return _report("check", found, chosen, states, changed=False)


def status(target: Path | None, series: Path | None, *, python: Path | None = None) -> PatchReport:
    """See :func:`fastfill.patching.status`."""
    found = locate(target, python)
    if _built_in(found):
        return PatchReport(
            action="status",
            target=str(found.package),
            version=found.version,
            series=None,
            state="built_in",
            changed=False,
            patches=[],
            files=[],
        )
    chosen = _choose(found, series)
    return _report("status", found, chosen, _inspect(found, chosen), changed=False)


def _change(
    action: Literal["apply", "reverse"],
    target: Path | None,
    series: Path | None,
    python: Path | None,
    pristine: Path | None,
    wanted: Callable[[FileState], int],
) -> PatchReport:
    found = locate(target, python)
    chosen = _choose(found, series)
    with exclusive(found.package):
        states = _inspect(found, chosen)
        _refuse_unknown(found, chosen, states, pristine)
        changes: dict[Path, bytes] = {}
        for state in states:
            new = _content(chosen, state, wanted(state))
            if new != state.content:
                changes[found.root / state.path] = new
        if changes:
            replace_all(changes)
            states = _inspect(found, chosen)
    return _report(action, found, chosen, states, changed=bool(changes))


def _built_in(found: Installation) -> bool:
    # A version that has a series lacks the path; if it is there all the same, someone else has put it in.
    has_series = found.version is not None and folder_for(found.version) is not None
    return found.has_built_in_path() and not has_series


def _choose(found: Installation, series: Path | None) -> Series:
    if _built_in(found):
        raise FastfillError(
            f"this SGLang ({found.version or 'version unknown'}) has the path built in: there is nothing to patch",
            where=str(found.package),
            next_step="serve with it as it is, and prove it: fastfill prove --url URL",
        )
    return choose(series, found.version, str(found.package))


def _inspect(found: Installation, series: Series) -> list[FileState]:
    return [inspect(series, path, found.read(path)) for path in series.paths()]


def _content(series: Series, state: FileState, count: int) -> bytes:
    patches = touching(series, state.path)[:count]
    try:
        return with_patches(state.pristine or b"", patches, state.path)
    except HunkError as error:
        lines = ", ".join(str(mismatch.line) for mismatch in error.mismatches)
        raise UsageError(
            f"the series does not apply to a source that it lists (hunks at lines {lines})",
            where=f"{series.folder}: {state.path}",
            next_step="remake the patch against that source, or take its hash out of sources.toml",
        ) from None


def _refuse_unknown(found: Installation, series: Series, states: list[FileState], pristine: Path | None) -> None:
    unknown = [state for state in states if not state.known]
    if not unknown:
        return
    shown, compared = [], True
    for state in unknown:
        text, at_hand = explain(series, state, pristine)
        shown.append(text)
        compared &= at_hand
    version = series.sources.version
    raise FastfillError(
        f"{len(unknown)} file(s) differ from SGLang {version}: someone else changed them, or it is another build; "
        "nothing was written",
        where=", ".join(str(found.root / state.path) for state in unknown),
        detail="\n".join(shown),
        next_step=f"reinstall sglang=={version}, then apply again"
        if compared
        else f"to see the whole difference: python -m pip download --no-deps sglang=={version} --dest DIR, "
        "then give --pristine DIR",
    )


def _report(
    action: Action, found: Installation, series: Series, states: list[FileState], *, changed: bool
) -> PatchReport:
    return PatchReport(
        action=action,
        target=str(found.package),
        version=found.version,
        series=str(series.folder),
        state=cast("Overall", overall(states)),
        changed=changed,
        patches=[
            PatchLine(
                name=patch.name,
                sha256=patch.sha256,
                description=patch.header.description,
                reason=patch.header.reason,
            )
            for patch in series.patches
        ],
        files=[
            FileLine(
                path=state.path,
                sha256=None if state.content is None else sha256(state.content),
                applied=state.applied if state.known else None,
                total=state.total,
            )
            for state in states
        ],
    )
