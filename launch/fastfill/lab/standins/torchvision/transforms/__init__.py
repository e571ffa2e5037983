"""See torchvision/__init__.py of the stand-ins."""

from .._stub import InterpolationMode as InterpolationMode
from .._stub import attributes_of
from . import functional as functional

__getattr__ = attributes_of(__name__)
