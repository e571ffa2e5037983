"""The hooks, one a module of SGLang; README.md's table says why each is there."""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any

from fastfill_standins import steps


def aiter_backend(module: ModuleType) -> None:
    """The backend believes that it runs on gfx950, and quantises to fp8 in torch."""
    from fastfill_standins.kv_write import launch_reshape_and_cache_flash
    from fastfill_standins.quant import scaled_fp8_quant

    if os.environ.get("FASTFILL_LAB_GFX", "1") == "1":
        module.is_gfx95_supported = lambda: True  # type: ignore[attr-defined]
    module.launch_reshape_and_cache_flash = launch_reshape_and_cache_flash  # type: ignore[attr-defined]
    if hasattr(module, "scaled_fp8_quant"):
        module.scaled_fp8_quant = scaled_fp8_quant  # type: ignore[attr-defined]


def layernorm_gated(module: ModuleType) -> None:
    """The gated norm takes its CPU operator though the machine has no AMX."""
    module._use_cpu = True  # type: ignore[attr-defined]


def server_args(module: ModuleType) -> None:
    """The mamba cache strategy that ROCm defaults to is allowed on a CPU."""
    arguments = module.ServerArgs
    if hasattr(arguments, "_validate_mamba_extra_buffer"):
        arguments._validate_mamba_extra_buffer = lambda self, view, model_arch: None


def mamba_hook(module: ModuleType) -> None:
    """The same, as newer releases ask."""
    module._platform_supports_mamba_cache_extra_buffer = lambda *args, **kwargs: True  # type: ignore[attr-defined]


def schedule_batch(module: ModuleType) -> None:
    """Pinned memory, which a CPU build of torch refuses, becomes ordinary memory for the whole process."""
    import torch

    make = torch.tensor

    def tensor(*args: Any, pin_memory: bool = False, **kwargs: Any) -> torch.Tensor:
        return make(*args, **kwargs)

    torch.tensor = tensor
    torch.Tensor.pin_memory = lambda self, *args, **kwargs: self  # type: ignore[method-assign]


class _NotACpu:
    """A platform that answers every question as before but one."""

    def __init__(self, real: object) -> None:
        self._real = real

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)

    def is_cpu(self) -> bool:
        return False


def kv_cache_configurator(module: ModuleType) -> None:
    """The KV cache may be fp8 on a CPU."""
    if hasattr(module, "current_platform"):
        module.current_platform = _NotACpu(module.current_platform)  # type: ignore[attr-defined]


def fp8_kernel(module: ModuleType) -> None:
    """Per-tensor quantisation, which 0.5.23's fp8 fallback gives q: saturating, as the GPU's operators are."""
    import torch

    def per_tensor(x: torch.Tensor, out: torch.Tensor, scale: torch.Tensor, is_static: bool) -> None:
        limit = torch.finfo(out.dtype).max
        if not is_static:
            scale.copy_(x.abs().max().float().reshape(scale.shape) / limit)
        out.copy_((x.float() / scale.float()).clamp(-limit, limit).to(out.dtype))

    if not hasattr(module, "sgl_per_tensor_quant_fp8"):
        module.sgl_per_tensor_quant_fp8 = per_tensor  # type: ignore[attr-defined]


def parallel_state(module: ModuleType) -> None:
    """The collectives of DP attention, which SGLang registers for accelerators alone: gloo does them."""
    import torch

    for name in ("all_gather_into_tensor", "reduce_scatter_tensor"):

        def collective(output: torch.Tensor, input: torch.Tensor, group_name: str, method: str = f"_{name}") -> None:
            getattr(module._groups[group_name](), method)(output, input)

        if hasattr(module, f"reg_{name}"):
            torch.library.impl(f"sglang::reg_{name}", "CPU")(collective)


def extend_attention(module: ModuleType) -> None:
    """Attention of drafts that the target model verifies, in torch; as the triton backend calls it, it stays."""
    from fastfill_standins.extend import extend_attention_fwd

    real = module.extend_attention_fwd

    def chosen(*tensors: Any, **more: Any) -> Any:
        return (extend_attention_fwd if set(more) <= {"logit_cap"} else real)(*tensors, **more)

    module.extend_attention_fwd = chosen  # type: ignore[attr-defined]


def eagle_utils(module: ModuleType) -> None:
    """The mask of drafts has a GPU's form, as aiter's backend reads it: a CPU's has no columns of the prompt."""
    if hasattr(module, "default_tree_mask_mode"):
        module.default_tree_mask_mode = lambda: module.TreeMaskMode.FULL_MASK  # type: ignore[attr-defined]


HOOKS = {
    "sglang.srt.speculative.eagle_utils": eagle_utils,
    "sglang.kernels.ops.attention.extend_attention": extend_attention,
    "sglang.srt.distributed.parallel_state": parallel_state,
    "sglang.kernels.ops.quantization.fp8_kernel": fp8_kernel,
    "sglang.srt.layers.attention.aiter_backend": aiter_backend,
    "sglang.kernels.ops.attention.fla.layernorm_gated": layernorm_gated,
    "sglang.srt.server_args": server_args,
    "sglang.srt.arg_groups.mamba_hook": mamba_hook,
    "sglang.srt.managers.schedule_batch": schedule_batch,
    "sglang.srt.managers.scheduler": steps.scheduler,
    "sglang.srt.mem_cache.kv_cache_configurator": kv_cache_configurator,
}
