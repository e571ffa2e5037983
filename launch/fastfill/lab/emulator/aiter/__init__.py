"""An emulated aiter: AMD's names, signatures and dispatch rules, with kernels in plain torch. Not AMD's aiter."""

from __future__ import annotations

import logging
import os
import sys

from . import faults

__version__ = "0.1.19.post3.dev139+gc16d44b93.emulated"

logger = logging.getLogger("aiter")
if not logger.handlers:
    _handler = logging.StreamHandler(sys.stderr)
    _handler.setFormatter(logging.Formatter("[%(name)s] %(message)s"))
    logger.addHandler(_handler)
    logger.setLevel(os.environ.get("AITER_LOG_LEVEL", "INFO").upper())
    logger.propagate = False

faults.active()

# isort: off
# Order as in aiter: dtypes is bound before any module that imports it from here.
from .jit import core as core  # noqa: E402
from .utility import dtypes as dtypes  # noqa: E402
from .ops.attention import *  # noqa: E402,F403
from .ops.mha import *  # noqa: E402,F403
from . import mla as mla  # noqa: E402
