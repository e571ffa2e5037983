"""aiter.ops.triton.attention.mha: where ENABLE_CK=0 sends the bf16 function."""

from __future__ import annotations

from .mha_v3 import flash_attn_varlen_func as flash_attn_varlen_func
