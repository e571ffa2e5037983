"""Writes a stack's values where bake and compose read them: between two marks; the rest of the file is untouched."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from fastfill import data
from fastfill.errors import UsageError
from fastfill.pinning import stack as stacks
from fastfill.pinning.stack import Stack


def arguments(stack: Stack) -> dict[str, str]:
    """The build arguments that ``docker/Dockerfile`` takes, by name."""
    return {
        "BASE_IMAGE": stack.base.reference,
        "BASE_DIGEST": stack.base.digest,
        "STACK": stack.name,
        "STACK_DIGEST": stack.digest(),
        "SGLANG_VERSION": stack.sglang.version,
        "AITER_REPOSITORY": stack.aiter.repository,
        "AITER_COMMIT": stack.aiter.commit,
        "AITER_VERSION": stack.aiter.version,
        "AITER_SUBMODULE": stack.aiter.submodule.path,
        "AITER_SUBMODULE_REPOSITORY": stack.aiter.submodule.repository,
        "AITER_SUBMODULE_COMMIT": stack.aiter.submodule.commit,
    }


def bake(stack: Stack) -> list[str]:
    """The block of ``docker/docker-bake.hcl``."""
    args = [f"    {name} = {json.dumps(value)}" for name, value in arguments(stack).items()]
    return [
        'target "_pins" {',
        f"  tags = [{json.dumps(stack.image)}]",
        "  args = {",
        *args,
        "  }",
        "}",
    ]


def compose(stack: Stack) -> list[str]:
    """The block of ``compose.yaml``."""
    return [
        f"x-image: &image {json.dumps(stack.image)}",
        f"x-kernels: &kernels {json.dumps('fastfill-kernels-' + stack.kernel_digest()[:12])}",
        "x-pins: &pins",
        *(f"  {name}: {json.dumps(value)}" for name, value in arguments(stack).items()),
    ]


FILES: dict[str, Callable[[Stack], list[str]]] = {"docker/docker-bake.hcl": bake, "compose.yaml": compose}
"""What is rendered, by path in the checkout."""


def splice(text: str, block: list[str], where: str) -> str:
    """The text with the lines between its marks replaced.

    Raises:
        UsageError: The file has no marks.
    """
    pattern = re.compile(r"^(# BEGIN PINS\b[^\n]*\n).*?^(# END PINS\b)", re.DOTALL | re.MULTILINE)
    if not pattern.search(text):
        raise UsageError(
            "the file has no lines `# BEGIN PINS` and `# END PINS`",
            where=where,
            next_step="put them back where the values belong",
        )
    return pattern.sub(lambda found: f"{found[1]}" + "".join(f"{line}\n" for line in block) + found[2], text, count=1)


def _with_series(name: str) -> tuple[Path, str]:
    """A stack file and its content with the hash of its series as the series is now."""
    path = stacks.path_of(name)
    series = stacks.series_digest(data.patches() / stacks.load(name).patches.series)
    return path, stacks.replace(path.read_text(encoding="utf-8"), "patches.sha256", series)


def outputs(root: Path, name: str) -> dict[Path, str]:
    """Every rendered file's new content, the derived hash in every stack file included; nothing is written.

    Args:
        root: The checkout.
        name: The stack.
    """
    changed = dict(_with_series(other) for other in stacks.available())
    path, text = _with_series(name)
    changed[path] = text
    stack = stacks.load(name)
    series = stacks.series_digest(data.patches() / stack.patches.series)
    stack = stack.model_copy(update={"patches": stack.patches.model_copy(update={"sha256": series})})
    for file, block in FILES.items():
        target = root / file
        changed[target] = splice(target.read_text(encoding="utf-8"), block(stack), str(target))
    return changed
