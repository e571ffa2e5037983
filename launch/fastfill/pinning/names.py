"""What a tree of Python source defines, looked up as an import would find it, without importing anything."""

from __future__ import annotations

import ast
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

OLD_NAMES = "_BACKWARD_COMPAT_MAP"
"""aiter/ops/triton/__init__.py installs its modules under these older names as well."""
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Found(NamedTuple):
    """A name that exists: its definition, where it is a function or class; else a module or a value."""

    module: str
    definition: Definition | None
    is_module: bool = False


class Module:
    """One source file: what its top level binds, branches of ``if`` and ``try`` included."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        self.definitions: dict[str, Definition | None] = {}
        self.imports: dict[str, tuple[str, str]] = {}
        self.stars: list[str] = []
        self.old_names: dict[str, str] = {}
        self._read(ast.parse(path.read_text(encoding="utf-8")).body)

    def _read(self, body: list[ast.stmt]) -> None:
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                self.definitions[node.name] = node
            elif isinstance(node, (ast.Assign, ast.AnnAssign)):
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    for leaf in ast.walk(target):
                        if isinstance(leaf, ast.Name):
                            self.definitions.setdefault(leaf.id, None)
                            self._old_names(leaf.id, node.value)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    self.imports[alias.asname or alias.name.split(".")[0]] = (alias.name, "")
            elif isinstance(node, ast.ImportFrom):
                self._import_from(node)
            else:
                for part in ("body", "orelse", "finalbody"):
                    self._read(getattr(node, part, []))
                for handler in getattr(node, "handlers", []):
                    self._read(handler.body)

    def _old_names(self, name: str, value: ast.expr | None) -> None:
        if name == OLD_NAMES and isinstance(value, ast.Dict):
            self.old_names = ast.literal_eval(value)

    def _import_from(self, node: ast.ImportFrom) -> None:
        source = absolute(node, self.package)
        for alias in node.names:
            if alias.name == "*":
                self.stars.append(source)
            else:
                self.imports[alias.asname or alias.name] = (source, alias.name)


def absolute(node: ast.ImportFrom, package: str) -> str:
    """The module that a ``from`` names, relative ones made absolute."""
    if not node.level:
        return node.module or ""
    parts = package.split(".")[: len(package.split(".")) - node.level + 1]
    return ".".join([*parts, *([node.module] if node.module else [])])


class Tree:
    """The modules below one folder that holds a package."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._modules: dict[str, Module | None] = {}

    @cached_property
    def namespaces(self) -> frozenset[str]:
        """Folders that hold modules and no ``__init__.py``, as dotted names."""
        folders = {file.parent for file in self._root.rglob("*.py")}
        return frozenset(".".join(folder.relative_to(self._root).parts) for folder in folders)

    def module(self, name: str) -> Module | None:
        """A module by its dotted name, None if there is no such file."""
        if name not in self._modules:
            base = self._root.joinpath(*name.split("."))
            files = [base / "__init__.py", base.with_suffix(".py")]
            path = next((file for file in files if file.is_file()), None)
            self._modules[name] = Module(name, path) if path is not None else self._renamed(name)
        return self._modules[name]

    def _renamed(self, name: str) -> Module | None:
        parent, _, last = name.rpartition(".")
        package = self.module(parent) if parent else None
        new = package.old_names.get(last) if package is not None else None
        return self.module(f"{parent}.{new}") if new else None

    def has(self, name: str) -> bool:
        """Whether a module or a folder of modules has this dotted name."""
        return self.module(name) is not None or name in self.namespaces

    def find(self, module: str, name: str, seen: frozenset[tuple[str, str]] = frozenset()) -> Found | None:
        """What ``from module import name`` gives, followed through re-exports and stars; None if it would fail."""
        if (module, name) in seen:
            return None
        seen = seen | {(module, name)}
        source = self.module(module)
        if source is not None:
            if name in source.definitions:
                return Found(module, source.definitions[name])
            if name in source.imports:
                origin, attribute = source.imports[name]
                if not self.has(origin.split(".")[0]):
                    return Found(origin, None)
                followed = self.find(origin, attribute, seen) if attribute else Found(origin, None, True)
                if followed is not None:
                    return followed
            for star in source.stars:
                followed = self.find(star, name, seen)
                if followed is not None and not name.startswith("_"):
                    return followed
        return Found(f"{module}.{name}", None, True) if self.has(f"{module}.{name}") else None
