"""aiter.ops.triton.utils.types: fp8 dtypes, for SGLang 0.5.23's own Triton kernels."""

from __future__ import annotations

import torch

e4m3_dtype = torch.float8_e4m3fn
e5m2_dtype = torch.float8_e5m2
