"""aiter.mla: names that SGLang imports beside the attention functions; the lab's models have no MLA."""

from __future__ import annotations

from .ops.attention import absent

mla_decode_fwd = absent("mla_decode_fwd")
mla_prefill_fwd = absent("mla_prefill_fwd")
