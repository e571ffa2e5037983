"""How one package uses another: the names it imports, and the calls it makes of them, read from source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_CATCHES_IMPORT = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}


class Use(NamedTuple):
    """One import or attribute of the other package.

    Attributes:
        module: The module named, dotted.
        name: What is taken from it; "" for the module itself.
        place: ``file:line``, relative to the package's parent.
        optional: Whether a failure of the import is caught, or this is what is tried after another failed.
        call: The call of it at this place, None for an import or a mere mention.
        certain: Whether the local name can only be this one; a file may bind it in several branches.
    """

    module: str
    name: str
    place: str
    optional: bool
    call: ast.Call | None = None
    certain: bool = True


def of_package(root: Path, package: str, other: str) -> Iterator[Use]:
    """Every use of ``other`` in the files of ``root/package``."""
    for path in sorted((root / package).rglob("*.py")):
        text = path.read_text(encoding="utf-8", errors="replace")
        if other in text:
            yield from _File(str(path.relative_to(root)), other, ast.parse(text)).uses()


class _File:
    def __init__(self, place: str, other: str, tree: ast.Module) -> None:
        self.place = place
        self.other = other
        self.tree = tree
        self.bound: dict[str, set[tuple[str, str]]] = {}
        self.foreign: set[str] = set()

    def uses(self) -> Iterator[Use]:
        yield from self._imports(self.tree, False)
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call):
                yield from self._mention(node.func, node, node.lineno)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                yield from self._mention(node, None, node.lineno)

    def _imports(self, node: ast.AST, optional: bool) -> Iterator[Use]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                local = alias.asname or alias.name.split(".")[0]
                if self._is_other(alias.name):
                    target = alias.name if alias.asname else self.other
                    self.bound.setdefault(local, set()).add((target, ""))
                    yield Use(alias.name, "", f"{self.place}:{node.lineno}", optional)
                else:
                    self.foreign.add(local)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                local = alias.asname or alias.name
                if node.level == 0 and node.module and self._is_other(node.module):
                    self.bound.setdefault(local, set()).add((node.module, alias.name))
                    yield Use(node.module, alias.name, f"{self.place}:{node.lineno}", optional)
                else:
                    self.foreign.add(local)
        else:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                self.foreign.add(node.name)
            caught = isinstance(node, ast.Try) and any(_catches_import(handler) for handler in node.handlers)
            fallback = isinstance(node, ast.ExceptHandler) and _catches_import(node)
            body = set(map(id, node.body)) if isinstance(node, ast.Try) else set()
            for child in ast.iter_child_nodes(node):
                yield from self._imports(child, optional or fallback or (caught and id(child) in body))

    def _is_other(self, module: str) -> bool:
        return module == self.other or module.startswith(f"{self.other}.")

    def _mention(self, node: ast.expr, call: ast.Call | None, line: int) -> Iterator[Use]:
        """A call of a bound name, or an attribute of a bound module."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.insert(0, node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self.bound:
            return
        certain = node.id not in self.foreign and len(self.bound[node.id]) == 1
        for module, name in sorted(self.bound[node.id]):
            path = [*([name] if name else []), *parts]
            if path and (call is not None or len(path) > 1 or not name):
                place = f"{self.place}:{line}"
                yield Use(".".join([module, *path[:-1]]), path[-1], place, False, call, certain)


def _catches_import(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    return any(isinstance(leaf, ast.Name) and leaf.id in _CATCHES_IMPORT for leaf in ast.walk(handler.type))
