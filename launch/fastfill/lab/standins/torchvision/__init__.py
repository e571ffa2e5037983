"""An import stand-in for torchvision (srt/utils/common.py:94): the real one pulls CUDA's torch."""

from . import io as io
from . import transforms as transforms
from ._stub import attributes_of

__version__ = "0.28.0"
__getattr__ = attributes_of(__name__)
