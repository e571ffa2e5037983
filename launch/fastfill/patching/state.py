"""Which patches a file carries, decided from its bytes alone: no pristine copy is needed."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from fastfill.patching.hunks import HunkError, transform
from fastfill.patching.series import Patch, Series


class FileState(NamedTuple):
    """What one file of the target is.

    Attributes:
        path: Relative to the folder that holds the package.
        content: The bytes found, None when the file is missing.
        pristine: The unpatched bytes, None when the file is not known.
        applied: How many of the patches that touch this file are applied (from the first), -1 when not known.
        total: How many patches touch this file.
    """

    path: str
    content: bytes | None
    pristine: bytes | None
    applied: int
    total: int

    @property
    def known(self) -> bool:
        """Whether the file is a listed source with the first ``applied`` patches and nothing else."""
        return self.pristine is not None


def sha256(content: bytes) -> str:
    """The SHA-256 in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def touching(series: Series, path: str) -> list[Patch]:
    """The patches that touch one file, in order."""
    return [patch for patch in series.patches if path in patch.files]


def with_patches(pristine: bytes, patches: list[Patch], path: str) -> bytes:
    """The file with these patches applied, in order.

    Raises:
        HunkError: One does not match exactly.
    """
    for patch in patches:
        pristine = transform(pristine, patch.files[path])
    return pristine


def inspect(series: Series, path: str, content: bytes | None) -> FileState:
    """Decide what a file is.

    The first n patches are undone for every n; the n for which the result is a listed source, and for which applying
    them again gives the same bytes, is the answer. One changed byte anywhere makes the file unknown.
    """
    patches = touching(series, path)
    total = len(patches)
    if content is not None:
        for applied in range(total + 1):
            try:
                candidate = content
                for patch in reversed(patches[:applied]):
                    candidate = transform(candidate, patch.files[path], backwards=True)
            except HunkError:
                continue
            if series.sources.accepts(path, sha256(candidate)):
                return FileState(path, content, candidate, applied, total)
    return FileState(path, content, None, -1, total)


def overall(states: list[FileState]) -> str:
    """``applied``, ``not_applied``, ``partial`` or ``foreign`` for the whole target."""
    if not all(state.known for state in states):
        return "foreign"
    if all(state.applied == state.total for state in states):
        return "applied"
    if all(state.applied == 0 for state in states):
        return "not_applied"
    return "partial"
