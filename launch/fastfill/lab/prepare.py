"""Everything that a lab server needs before it is started."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from fastfill import data, output
from fastfill.errors import NotReadyError
from fastfill.lab import cache, command, install, models, packages, patched, stacks
from fastfill.lab.spec import LabSpec


def paths(spec: LabSpec, place: Path) -> command.Paths:
    """Install, patch, write the model and clean the run folder, each only if need be.

    Args:
        spec: What is to be served.
        place: The run folder.
    """
    stack = stacks.find(spec.stack)
    environment = install.ensure(stack)
    sources = patched.sources(stack, environment)
    links = packages.link()
    python = install.python_of(environment)
    model = model_folder(spec.model, python, links)
    state = Path(spec.state_dir).absolute() if spec.state_dir else place / "state"
    if not spec.state_dir:
        # The lab starts clean: a kill switch thrown in an earlier trial would make this one a riddle.
        shutil.rmtree(state, ignore_errors=True)
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    for left in ("aiter.jsonl", command.DELAY):
        (place / left).unlink(missing_ok=True)
    return command.Paths(python=python, links=links, sources=sources, model=model, run=place, state=state)


def model_folder(model: str, python: Path, links: Path) -> Path:
    """The checkpoint of a variant, written on first use; a folder is taken as it is."""
    if model not in models.VARIANTS:
        return Path(model).absolute()
    from filelock import FileLock

    place = cache.folder("models") / f"{model}-{models.fingerprint()}"
    if place.is_dir():
        return place
    with FileLock(str(place) + ".lock"):
        if place.is_dir():
            return place
        partial = place.with_name(f".{place.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        output.talk(f"lab: writing model {model}: {models.VARIANTS[model]}")
        answer = subprocess.run(
            [str(python), "-m", "fastfill.lab.models", model, str(partial)],
            env=command.on_a_cpu(links, os.environ),
            capture_output=True,
            text=True,
            check=False,
        )
        if answer.returncode != 0:
            raise NotReadyError(
                f"model {model} could not be written",
                where=str(partial),
                detail=answer.stderr[-2000:],
                next_step="look at the space on that disk; a broken environment is made anew when its folder is gone",
            )
        partial.rename(place)
    return place


def run_python(argv: list[str], stack: str = stacks.DEFAULT, stdin: str = "") -> str:
    """Run the lab's interpreter, installed and patched first if need be.

    Returns:
        What it wrote to stdout.

    Raises:
        NotReadyError: It failed.
    """
    python, env = interpreter_of(stack)
    answer = subprocess.run([str(python), *argv], env=env, input=stdin, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise NotReadyError(
            f"{' '.join(argv[:2])} failed in the lab's environment",
            where=str(python),
            detail=answer.stderr[-2000:],
            next_step=f"try it there: fastfill lab python --stack {stack} -- {' '.join(argv[:2])}",
        )
    return answer.stdout


def interpreter_of(stack: str, *, tests: bool = False) -> tuple[Path, dict[str, str]]:
    """The lab's interpreter and its environment variables; with ``tests`` it has pytest and hypothesis."""
    chosen = stacks.find(stack)
    environment = install.ensure(chosen)
    sources = patched.sources(chosen, environment)
    if tests:
        install.ensure_extra(environment, data.requirements() / "lab-test.txt")
    return install.python_of(environment), command.on_a_cpu(packages.link(), os.environ, sources)
