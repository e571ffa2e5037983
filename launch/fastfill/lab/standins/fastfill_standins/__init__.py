"""Post-import hooks of the lab: each changes one SGLang module, right after that module has been executed."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

Hook = Callable[[ModuleType], None]


class _Loader(importlib.abc.Loader):
    """Runs the real loader, then the hook."""

    def __init__(self, real: importlib.abc.Loader, hook: Hook) -> None:
        self._real = real
        self._hook = hook

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._real.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._real.exec_module(module)
        self._hook(module)

    def __getattr__(self, name: str) -> object:
        # get_source, get_data and the like: inspect and Triton's jit read a kernel's source through the loader.
        return getattr(self._real, name)


class Finder(importlib.abc.MetaPathFinder):
    """Finds the hooked modules through the ordinary path and wraps their loader."""

    def __init__(self, hooks: dict[str, Hook]) -> None:
        self.hooks = hooks

    def find_spec(self, name, path=None, target=None):  # noqa: ANN001, ANN201
        hook = self.hooks.get(name)
        other = _other_source(name)
        if hook is None and other is None:
            return None
        if other is None:
            spec = importlib.machinery.PathFinder.find_spec(name, path)
        else:
            spec = importlib.util.spec_from_file_location(name, other)
        if spec is None or spec.loader is None:
            return None
        if hook is not None:
            spec.loader = _Loader(spec.loader, hook)
        return spec


def _other_source(name: str) -> str | None:
    """The file of a SGLang module in $FASTFILL_LAB_SOURCES, if it has one: how the lab serves unpatched files."""
    folder = os.environ.get("FASTFILL_LAB_SOURCES")
    if not folder or not name.startswith("sglang."):
        return None
    path = Path(folder, *name.split(".")).with_suffix(".py")
    return str(path) if path.is_file() else None


def install() -> None:
    """Put the finder first, once."""
    from fastfill_standins import hooks

    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder(hooks.HOOKS))
