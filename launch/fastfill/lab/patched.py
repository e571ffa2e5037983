"""Keeps the environment's SGLang patched with the series at hand, and its unpatched files beside it.

The environment outlives a series: when the series has changed, the old one, of which the environment holds a copy, is
taken out first. An unpatched stack shares the environment and changes nothing in it: it reads the unpatched files.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from pathlib import Path

from fastfill import output, patching
from fastfill.errors import FastfillError, NotReadyError
from fastfill.lab import install
from fastfill.lab.stacks import Stack

PRISTINE = "fastfill-pristine"
"""In the environment: the files of SGLang that the series changes, as the wheel has them."""
_APPLIED = "fastfill-series"


def sources(stack: Stack, environment: Path) -> Path | None:
    """Make the environment ready to serve the stack.

    Returns:
        A folder whose files of SGLang are to be read in the place of the installed ones; None where these are right.

    Raises:
        FastfillError: The series does not apply.
        NotReadyError: SGLang had to be reinstalled and could not be.
    """
    from filelock import FileLock

    if stack.patched:
        ensure(stack, environment)
        return None
    with FileLock(str(environment) + ".lock"):
        # Without a stamp nobody has patched this environment: its files are the wheel's.
        return environment / PRISTINE if _stamp(environment) is not None else None


def ensure(stack: Stack, environment: Path) -> Path:
    """Patch the environment's SGLang with the series at hand, if it is not.

    Returns:
        The folder of the unpatched files.

    Raises:
        FastfillError: The series does not apply.
        NotReadyError: SGLang had to be reinstalled and could not be.
    """
    from filelock import FileLock

    target = install.site_packages(environment, stack)
    pristine = environment / PRISTINE
    with FileLock(str(environment) + ".lock"):
        wanted = _digest(stack.series())
        if _stamp(environment) == wanted and pristine.is_dir():
            patching.apply(target, stack.series())
            return pristine
        output.talk(f"lab: patching SGLang {stack.sglang} with {stack.series().name}")
        _take_out(stack, environment, target)
        _keep_pristine(stack, target, pristine)
        _copy_series(stack.series(), environment / _APPLIED)
        patching.apply(target, stack.series())
        (environment / _APPLIED / "stamp.json").write_text(json.dumps({"sha256": wanted}), encoding="utf-8")
    return pristine


def _digest(series: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(series.iterdir()):
        if file.is_file():
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def _stamp(environment: Path) -> str | None:
    try:
        return str(json.loads((environment / _APPLIED / "stamp.json").read_text(encoding="utf-8"))["sha256"])
    except (OSError, ValueError, KeyError):
        return None


def _take_out(stack: Stack, environment: Path, target: Path) -> None:
    """Give SGLang's files back: by reversing the old series or the new one, or by reinstalling."""
    for series in (environment / _APPLIED, stack.series()):
        if not (series / "series").is_file():
            continue
        try:
            patching.reverse(target, series)
        except FastfillError:
            continue
        return
    output.talk(f"lab: reinstalling SGLang {stack.sglang}: its files are not the wheel's")
    _reinstall(stack, environment)


def _reinstall(stack: Stack, environment: Path) -> None:
    argv = [*install.pip(environment), "--force-reinstall", "-r", str(_sglang_lock(stack, environment))]
    answer = subprocess.run(argv, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise NotReadyError(
            f"SGLang {stack.sglang} could not be reinstalled",
            where=str(environment),
            detail=answer.stderr[-2000:],
            next_step=f"remove {environment}, then run it again",
        )


def _sglang_lock(stack: Stack, environment: Path) -> Path:
    """The lock's entry for SGLang alone."""
    entry: list[str] = []
    for line in stack.lock.read_text(encoding="utf-8").splitlines():
        if line.startswith("sglang=="):
            entry = [line]
        elif entry and line.startswith(" "):
            entry.append(line)
        elif entry:
            break
    file = environment / "fastfill-sglang.txt"
    file.write_text("\n".join(entry) + "\n", encoding="utf-8")
    return file


def _keep_pristine(stack: Stack, target: Path, pristine: Path) -> None:
    shutil.rmtree(pristine, ignore_errors=True)
    report = patching.status(target, stack.series())
    for file in report.files:
        copy = pristine / file.path
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(target / file.path, copy)


def _copy_series(series: Path, place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(series, place)
