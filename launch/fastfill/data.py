"""Finds the files that ship beside the code: profiles, patch series, requirement locks, stacks."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_INSTALLED = _PACKAGE / "data"
_CHECKOUT = _PACKAGE.parent.parent


def _find(installed: str, checkout: str) -> Path:
    inside = _INSTALLED / installed
    return inside if inside.is_dir() else _CHECKOUT / checkout


def profiles() -> Path:
    """The folder of launch profiles, ``*.toml``."""
    return _find("profiles", "launch/profiles")


def patches() -> Path:
    """The folder of patch series, ``sglang-<version>/``."""
    return _find("patches", "patches")


def requirements() -> Path:
    """The folder of hash-locked requirement files."""
    return _find("requirements", "requirements")


def stacks() -> Path:
    """The folder of stack files, ``*.toml``."""
    return _find("stacks", "docker/stacks")


def checkout() -> Path | None:
    """The root of the checkout that fastfill runs from; None where it was installed from a wheel."""
    return _CHECKOUT if (_CHECKOUT / "docker" / "stacks").is_dir() else None
