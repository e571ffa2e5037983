"""Do the pins fit each other: every name that SGLang takes from aiter is there and takes SGLang's calls.

Read from the two source trees; nothing is imported, so it runs without a GPU. It cannot see names made at run time.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field

from fastfill.pinning.names import Definition, Found, Tree
from fastfill.pinning.uses import Use, of_package

Status = Literal["fits", "misfit", "missing", "optional_missing"]


class Name(BaseModel):
    """One name of aiter that SGLang uses.

    Attributes:
        name: Dotted, as SGLang names it.
        status: ``missing`` and ``misfit`` break SGLang where it is reached; ``optional_missing`` is caught there.
        calls: How many calls of it were compared with its signature.
        places: Where it is used or, for a misfit, where it does not fit.
        detail: What does not fit.
    """

    name: str
    status: Status
    calls: int
    places: list[str]
    detail: str = ""


class FitDocument(BaseModel):
    """The result, as it is kept beside the stack file."""

    schema_: Literal["fastfill.pins-fit/1"] = Field(default="fastfill.pins-fit/1", serialization_alias="schema")
    stack: str
    sglang: str
    aiter: str
    names: list[Name]


def check(sglang: Path, aiter: Path, hooked: Iterable[str] = ()) -> list[Name]:
    """Compare two trees.

    Args:
        sglang: The folder that holds the package ``sglang``.
        aiter: The folder that holds the package ``aiter``.
        hooked: Dotted names of aiter that the witness hooks; a missing one blinds it.

    Returns:
        One entry a name, sorted.
    """
    tree = Tree(aiter)
    names: dict[str, list[Use]] = {}
    witnessed = [Use(*name.rpartition(".")[::2], "sglang_fastfill/witness.py", False) for name in hooked]
    for use in [*of_package(sglang, "sglang", "aiter"), *witnessed]:
        names.setdefault(f"{use.module}.{use.name}".rstrip("."), []).append(use)
    judged = [_judge(tree, name, uses) for name, uses in sorted(names.items())]
    return [entry for entry in judged if entry is not None]


def _judge(tree: Tree, name: str, uses: list[Use]) -> Name | None:
    found = _find(tree, uses[0])
    places = list(dict.fromkeys(use.place for use in uses))
    if found is None:
        if not any(use.certain for use in uses) or _member_of_value(tree, uses[0]):
            return None
        status: Status = "optional_missing" if all(use.optional for use in uses if use.call is None) else "missing"
        return Name(name=name, status=status, calls=0, places=places[:4], detail="not defined there")
    calls = [use for use in uses if use.call is not None and use.certain]
    for use in calls:
        problem = misfit(found.definition, use.call) if use.call is not None else ""
        if problem:
            return Name(name=name, status="misfit", calls=len(calls), places=[use.place], detail=problem)
    return Name(name=name, status="fits", calls=len(calls), places=places[:4])


def _find(tree: Tree, use: Use) -> Found | None:
    """What a use names; a module that was itself re-exported is followed."""
    if not use.name:
        return Found(use.module, None, True) if tree.has(use.module) else None
    if tree.has(use.module):
        return tree.find(use.module, use.name)
    parent, _, last = use.module.rpartition(".")
    through = tree.find(parent, last) if parent else None
    return tree.find(through.module, use.name) if through is not None and through.is_module else None


def _member_of_value(tree: Tree, use: Use) -> bool:
    """Members of a class or of an object are not looked into: only modules and functions are."""
    parts = use.module.split(".")
    for end in range(len(parts), 1, -1):
        parent = ".".join(parts[: end - 1])
        if tree.has(parent):
            found = tree.find(parent, parts[end - 1])
            return found is not None and not found.is_module
    return False


def misfit(definition: Definition | None, call: ast.Call) -> str:
    """Why a call does not fit a signature, "" if it does or cannot be told."""
    arguments = _signature(definition)
    if arguments is None:
        return ""
    positional = [*arguments.posonlyargs, *arguments.args]
    by_position = [item for item in call.args if not isinstance(item, ast.Starred)]
    unpacked = len(by_position) < len(call.args)
    keywords = {keyword.arg for keyword in call.keywords if keyword.arg is not None}
    more = unpacked or any(keyword.arg is None for keyword in call.keywords)
    if len(by_position) > len(positional) and arguments.vararg is None:
        return f"{len(by_position)} positional arguments, it takes {len(positional)}"
    known = {argument.arg for argument in [*arguments.args, *arguments.kwonlyargs]}
    strangers = keywords - known
    if strangers and arguments.kwarg is None:
        return f"no parameter {', '.join(sorted(strangers))}"
    given = {argument.arg for argument in positional[: len(by_position)]}
    if given & keywords:
        return f"{', '.join(sorted(given & keywords))} given twice"
    required = {argument.arg for argument in positional[: len(positional) - len(arguments.defaults)]}
    required |= {
        a.arg for a, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if default is None
    }
    absent = required - given - keywords
    return f"{', '.join(sorted(absent))} not given" if absent and not more else ""


def _signature(definition: Definition | None) -> ast.arguments | None:
    if isinstance(definition, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return definition.args
    if isinstance(definition, ast.ClassDef):
        for node in definition.body:
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                arguments = node.args
                return ast.arguments(
                    posonlyargs=arguments.posonlyargs,
                    args=arguments.args[1:],
                    vararg=arguments.vararg,
                    kwonlyargs=arguments.kwonlyargs,
                    kw_defaults=arguments.kw_defaults,
                    kwarg=arguments.kwarg,
                    defaults=arguments.defaults,
                )
    return None


def problems(names: Iterable[Name]) -> list[Name]:
    """The entries that break SGLang where they are reached."""
    return [entry for entry in names if entry.status in ("missing", "misfit")]
