"""Makes the lab's environment once: in a folder of another name, renamed when it is whole."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

from fastfill import output
from fastfill.errors import NotReadyError
from fastfill.lab import cache, interpreter
from fastfill.lab.stacks import Stack

SIZE_GB = 4.0
"""Free disk that a whole environment needs: 2.3 GB of packages, and what pip unpacks meanwhile."""
OVERLAY_GB = 1.0
"""The same for one that lies on another: SGLang and the few packages of which it wants another version."""
_BASE = "fastfill-base.pth"
_NETWORK = re.compile(
    r"NewConnectionError|NameResolutionError|name resolution|Connection refused|ConnectTimeout|ReadTimeout"
    r"|Network is unreachable|ProxyError|No matching distribution|Could not find a version",
    re.IGNORECASE,
)


def ensure(stack: Stack) -> Path:
    """The stack's environment, installed if it is not there yet. Safe to call from several processes at once.

    Returns:
        The environment's folder; ``bin/python`` in it has SGLang.

    Raises:
        NotReadyError: No room, no network, no fitting Python, or pip failed.
    """
    from filelock import FileLock

    under = ensure(stack.over) if stack.over else None
    name = stack.environment_name()
    place = cache.folder("environments") / name
    if place.is_dir():
        return place
    with FileLock(str(place) + ".lock"):
        if not place.is_dir():
            _clean(place)
            _install(stack, place, under)
    return place


def ensure_extra(environment: Path, lock: Path) -> None:
    """Add a further lock's packages to an environment, once.

    Raises:
        NotReadyError: pip failed.
    """
    from filelock import FileLock

    stamp = environment / f"fastfill-{lock.stem}.txt"
    with FileLock(str(environment) + ".lock"):
        if stamp.is_file() and stamp.read_bytes() == lock.read_bytes():
            return
        _run([*pip(environment), "-r", str(lock)], lock.stem, environment)
        stamp.write_bytes(lock.read_bytes())


def python_of(environment: Path) -> Path:
    """The environment's interpreter."""
    return environment / "bin" / "python"


def site_packages(environment: Path, stack: Stack) -> Path:
    """Where the environment's packages lie."""
    return environment / "lib" / f"python{stack.python}" / "site-packages"


def _partial(place: Path) -> Path:
    return place.with_name(f".{place.name}.partial")


def _clean(place: Path) -> None:
    """Remove what an interrupted installation left; pip's own cache makes the next one short."""
    partial = _partial(place)
    if partial.exists():
        output.talk("lab: an earlier installation was interrupted; starting again")
        shutil.rmtree(partial)


def _install(stack: Stack, place: Path, under: Path | None) -> None:
    interpreter.require_platform()
    base = interpreter.find(stack.python)
    cache.require_space(place.parent, OVERLAY_GB if under else SIZE_GB, "the lab's environment")
    partial = _partial(place)
    started = time.monotonic()
    how_long = "half a minute" if under else "about two minutes"
    output.talk(f"lab: installing SGLang {stack.sglang} into {place} (once; {how_long})")
    try:
        _run([str(base), "-m", "venv", str(partial)], "making the environment", partial)
        command = pip(partial)
        if under is None:
            _run([*command, *_torch_source(), "-r", str(stack.torch_lock)], "torch", partial)
        _run([*command, "-r", str(stack.lock)], f"SGLang {stack.sglang} and its packages", partial)
        if under is not None and stack.over is not None:
            # Python's own means: what the environment lacks is looked for in the other one, behind its own packages.
            # Written last, so that pip has seen this environment alone.
            (site_packages(partial, stack) / _BASE).write_text(
                f"{site_packages(under, stack.over)}\n", encoding="utf-8"
            )
        partial.rename(place)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    output.talk(f"lab: installed in {time.monotonic() - started:.0f} s")


def pip(environment: Path) -> list[str]:
    """The words of a pip command that installs what a lock names, and only that."""
    words = ["-m", "pip", "install", "--require-hashes", "--no-deps", "--no-input", "--disable-pip-version-check"]
    return [str(python_of(environment)), *words]


def _torch_source() -> list[str]:
    source = os.environ.get("FASTFILL_LAB_TORCH_INDEX")
    if not source:
        return []
    return ["--find-links", source] if Path(source).is_dir() else ["--extra-index-url", source]


def _run(argv: list[str], what: str, partial: Path) -> None:
    """Run one step with its output in a file, and say now and then how far it is."""
    log = partial.with_name(f"{partial.name}.log")
    with log.open("ab") as file:
        process = subprocess.Popen(argv, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        try:
            _watch(process, what, log)
        except BaseException:
            process.kill()
            process.wait()
            raise
    if process.returncode != 0:
        raise _failure(what, log)


def _watch(process: subprocess.Popen[bytes], what: str, log: Path) -> None:
    from fastfill.lab.progress import Progress

    with Progress(f"lab: {what}") as progress:
        while True:
            try:
                process.wait(0.5)
                return
            except subprocess.TimeoutExpired:
                progress.show(_step(log))


def _step(log: Path) -> str:
    """pip's own last word on what it does."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-200:]
    for line in reversed(lines):
        if line.startswith("Installing collected packages"):
            return "unpacking"
        if line.startswith("Collecting "):
            return line.removeprefix("Collecting ").split(" ")[0].split("==")[0]
    return ""


def _failure(what: str, log: Path) -> NotReadyError:
    text = log.read_text(encoding="utf-8", errors="replace")
    last = "\n".join([line for line in text.splitlines() if not line.startswith("WARNING: Location")][-12:])
    if "No space left on device" in text:
        next_step = "make room, or set FASTFILL_CACHE to a folder on a larger disk"
    elif what == "torch" and _NETWORK.search(text):
        next_step = (
            "set FASTFILL_LAB_TORCH_INDEX to the index of PyTorch's CPU builds, or to a folder with the wheel that "
            "requirements/lab-torch.txt names"
        )
    elif _NETWORK.search(text):
        next_step = "give this machine a way to a package index (pip's own settings apply), then run it again"
    else:
        next_step = "read the log, then run it again: what was downloaded is kept by pip"
    # Kept for the reader: the partial folder goes, its log stays beside it.
    return NotReadyError(f"{what} could not be installed", where=str(log), detail=last, next_step=next_step)
