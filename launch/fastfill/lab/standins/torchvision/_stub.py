"""What SGLang and transformers import from torchvision and a text model never calls."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, NoReturn


class InterpolationMode(enum.Enum):
    """transformers reads the members while it is imported."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


def attributes_of(module: str) -> Callable[[str], Any]:
    """A module's ``__getattr__``: any public name is a function that raises when called."""

    def __getattr__(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def absent(*_args: Any, **_kwargs: Any) -> NoReturn:
            raise NotImplementedError(f"the lab has no {module}.{name}")

        absent.__name__ = absent.__qualname__ = name
        return absent

    return __getattr__
