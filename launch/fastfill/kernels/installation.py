"""Reads what an aiter checkout, a site-packages folder or a single object holds. No judgement here."""

from __future__ import annotations

import ast
import csv
from pathlib import Path
from typing import NamedTuple

from fastfill.errors import UsageError
from fastfill.kernels.objects import KernelObject, PrebuiltModule, read_module, read_object
from fastfill.kernels.revisions import CAUSAL_GROUP, FILES

_OBJECTS = Path("hsa/gfx950/fmha_v3_fwd")
_TABLE = "fmha_fwd.csv"
_GATE = Path("ops/mha.py")
_MODULE = Path("jit/module_fmha_v3_varlen_fwd.so")


class TableRow(NamedTuple):
    """The table's row for causal, packed fp8 head dim 256: the kernel's symbol and its file."""

    symbol: str
    file: str


class Installation(NamedTuple):
    """What was found.

    Attributes:
        path: What was looked at.
        kind: ``checkout``, ``site-packages`` or ``object``.
        objects: The head-dim-256 fp8 objects that are there.
        row: The table's row; None if it has none.
        table_problem: Why the table could not be read, "" if it could (or there was no place for one).
        gate: Whether the Python gate of the varlen forward lets head dim 256 through; None if it could not be read.
        gate_problem: Why not.
        module: The prebuilt module; None if there is none.
    """

    path: Path
    kind: str
    objects: tuple[KernelObject, ...]
    row: TableRow | None
    table_problem: str
    gate: bool | None
    gate_problem: str
    module: PrebuiltModule | None


def read(path: Path) -> Installation:
    """Read an aiter checkout, a site-packages folder (or one of its two packages), or one ``.co`` file.

    Raises:
        UsageError: There is nothing of the kind at ``path``.
    """
    if path.is_file():
        found = read_object(path)
        if found.problem and path.suffix != ".co":
            raise UsageError(
                f"this is no kernel object: {found.problem}",
                where=str(path),
                next_step="give an aiter checkout, a site-packages folder, or one .co file",
            )
        return Installation(path, "object", (found,), None, "", None, "", None)
    if not path.is_dir():
        raise UsageError(
            "there is no such file or folder", where=str(path), next_step="fastfill kernel identify --help"
        )
    located = _locate(path)
    if located is None:
        raise UsageError(
            "this is neither an aiter checkout, nor a site-packages folder that holds aiter, nor a kernel object",
            where=str(path),
            next_step="look where this prints: python -c 'import aiter_meta as m; print(m.__path__)'",
        )
    kind, data, package = located
    row, table_problem = _read_table(data / _OBJECTS / _TABLE)
    gate, gate_problem = _read_gate(package / _GATE)
    module = package / _MODULE
    return Installation(
        path,
        kind,
        tuple(read_object(data / _OBJECTS / name) for name in FILES if (data / _OBJECTS / name).is_file()),
        row,
        table_problem,
        gate,
        gate_problem,
        read_module(module, CAUSAL_GROUP) if module.is_file() else None,
    )


def _locate(path: Path) -> tuple[str, Path, Path] | None:
    """The kind, the folder that holds ``hsa/`` and the Python package ``aiter``; None if this is not aiter."""
    for root in (path, path.parent):
        if (root / "hsa").is_dir() and (root / "aiter" / "ops").is_dir():
            return "checkout", root, root / "aiter"
        if (root / "aiter_meta" / "hsa").is_dir():
            return "site-packages", root / "aiter_meta", root / "aiter"
    for link in sorted(path.glob("__editable__*aiter*.pth")):
        for line in link.read_text(encoding="utf-8", errors="replace").splitlines():
            target = Path(line.strip())
            if target.is_dir() and target != path and (found := _locate(target)) is not None:
                return found
    return None


def _read_table(path: Path) -> tuple[TableRow | None, str]:
    """The row for dtype fp8bf16, head dims 256/256, mask 2 (bottom-right causal), mode 1 (packed sequences)."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                key = tuple(row.get(column) for column in ("dtype", "hdim_q", "hdim_v", "mask", "mode"))
                if key == ("fp8bf16", "256", "256", "2", "1"):
                    return TableRow(row.get("knl_name") or "", row.get("co_name") or ""), ""
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        return None, f"{path}: {error}"
    return None, ""


def _read_gate(path: Path) -> tuple[bool | None, str]:
    """Whether a varlen forward function of ``aiter/ops/mha.py`` compares ``hdim_q`` with 256."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, SyntaxError, ValueError) as error:
        return None, f"{path}: {error}"
    forwards = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and "varlen" in node.name and "forward" in node.name
    ]
    if not forwards:
        return None, f"{path}: no varlen forward function"
    return any(_compares_256(node) for forward in forwards for node in ast.walk(forward)), ""


def _compares_256(node: ast.AST) -> bool:
    if not isinstance(node, ast.Compare):
        return False
    parts = [node.left, *node.comparators]
    names = any(isinstance(part, ast.Name) and part.id == "hdim_q" for part in parts)
    return names and any(
        isinstance(leaf, ast.Constant) and leaf.value == 256 for part in parts for leaf in ast.walk(part)
    )
