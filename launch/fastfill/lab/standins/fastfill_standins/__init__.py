"""Post-import hooks of the lab: each changes one SGLang module, right after that module has been executed."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable
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
        if hook is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            return None
        spec.loader = _Loader(spec.loader, hook)
        return spec


def install() -> None:
    """Put the finder first, once."""
    from fastfill_standins import hooks

    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder(hooks.HOOKS))
