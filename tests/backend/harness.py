"""SGLang's real AiterAttnBackend, KV pools and ForwardBatch on CPU tensors, patched and unpatched side by side."""

from __future__ import annotations

import importlib.util
import math
import os
import shutil
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import release
import torch
from sglang.srt.configs.model_config import AttentionArch
from sglang.srt.layers.attention import aiter_backend as patched_module
from sglang.srt.layers.radix_attention import RadixAttention
from sglang.srt.mem_cache import memory_pool
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, ReqToTokenPool
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool
from sglang.srt.model_executor.forward_batch_info import ForwardBatch, ForwardMode
from sglang.srt.runtime_context import get_parallel

from fastfill import patching

FP8 = torch.float8_e4m3fn
SLOTS = 4096
ROUTES = ("fused", "unified", "swa", "vectorized_5d")
"""KV write routes that fp8 at head dim 256 can take."""
GATHERS = hasattr(patched_module.AiterAttnBackend, "_asm_context_prefill_indices")
"""Whether this SGLang brings a prefix to the kernel (0.5.19 and later), which the 5-D pool never does."""

parallel = get_parallel().override(attn_tp_size=1)
parallel.__enter__()


def load_unpatched(folder: Path) -> Any:
    """SGLang's own aiter_backend, as its wheel holds it, loaded beside the patched one."""
    package = Path(patched_module.__file__).parents[3]
    names = {
        "sglang.srt.layers.attention.aiter_utils_unpatched": "srt/layers/attention/aiter_utils.py",
        "sglang.srt.layers.attention.aiter_backend_unpatched": "srt/layers/attention/aiter_backend.py",
    }
    copy = folder / "sglang"
    for path in ("__init__.py", "_version.py", *names.values()):
        (copy / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(package / path, copy / path)
    patching.reverse(folder)
    module: Any = None
    for name, path in names.items():
        file = folder / f"{name}.py"
        text = (copy / path).read_text()
        file.write_text(text.replace("attention.aiter_utils import", "attention.aiter_utils_unpatched import"))
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    # What the lab's stand-ins do to the module under its own name.
    for name in ("is_gfx95_supported", "launch_reshape_and_cache_flash"):
        setattr(module, name, getattr(patched_module, name))
    assert not hasattr(module, "fastfill_prefill")
    return module


@contextmanager
def without_builtin(module: Any) -> Iterator[None]:
    """The unpatched backend without its own path, which 0.5.17 and later have: as on a GPU that lacks the kernel."""
    believed = module.is_gfx95_supported
    module.is_gfx95_supported = lambda: False
    try:
        yield
    finally:
        module.is_gfx95_supported = believed


@contextmanager
def pool_layout(layout: str) -> Iterator[None]:
    """SHUFFLE 5-D pools exist on HIP only; this lets one be made here."""
    from sglang.srt.environ import envs

    before = memory_pool._use_aiter
    memory_pool._use_aiter = True
    with envs.SGLANG_AITER_KV_CACHE_LAYOUT.override(layout):
        yield
    memory_pool._use_aiter = before


@contextmanager
def overflowing_casts() -> Iterator[None]:
    """Casts to fp8 as torch before 2.13 and on CUDA makes them: |x| > 464 becomes NaN (2.13.0 on a CPU saturates)."""
    plain = torch.Tensor.to

    def to(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        out = plain(self, *args, **kwargs)
        if out.dtype != FP8 or self.dtype == FP8:
            return out
        codes = out.view(torch.uint8).clone()
        codes[self.abs() > 464] = 0x7F
        return codes.view(FP8)

    torch.Tensor.to = to  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.Tensor.to = plain  # type: ignore[method-assign]


class Engine:
    """One attention backend with its pools, and the prompts that it has been given so far.

    Args:
        route: One of ROUTES.
        module: The aiter_backend module to take the backend from.
        heads: q heads.
        kv_heads: kv heads.
        dim: Head dim.
        kv_dtype: dtype of the KV cache.
        page: Page size; the 5-D pool needs 16.
    """

    def __init__(
        self,
        route: str = "fused",
        module: Any = patched_module,
        heads: int = 4,
        kv_heads: int = 2,
        dim: int = 256,
        kv_dtype: torch.dtype = FP8,
        page: int = 1,
        dtype: torch.dtype = torch.bfloat16,
        v_dim: int | None = None,
    ) -> None:
        self.heads, self.kv_heads, self.dim, self.route = heads, kv_heads, dim, route
        page = 16 if route == "vectorized_5d" else page
        config = types.SimpleNamespace(
            dtype=dtype,
            is_multimodal=False,
            num_attention_heads=heads,
            head_dim=dim,
            get_num_kv_heads=lambda _tp: kv_heads,
            attention_arch=AttentionArch.MHA,
            context_len=8192,
            is_encoder_decoder=False,
        )
        runner = types.SimpleNamespace(
            model_config=config,
            server_args=types.SimpleNamespace(
                page_size=page, speculative_num_draft_tokens=None, speculative_num_steps=None
            ),
            device="cpu",
            kv_cache_dtype=kv_dtype,
            dtype=dtype,
            sliding_window_size=None,
        )
        runner.req_to_token_pool = ReqToTokenPool(
            size=320, max_context_len=8192, device="cpu", enable_memory_saver=False
        )
        common = {"page_size": page, "dtype": kv_dtype, "head_num": kv_heads, "head_dim": dim, "device": "cpu"}
        if v_dim is not None:
            common["v_head_dim"] = v_dim
        with pool_layout("vectorized_5d" if route == "vectorized_5d" else "nhd"):
            if route == "swa":
                pool = SWAKVPool(
                    size=SLOTS,
                    size_swa=SLOTS,
                    swa_attention_layer_ids=[1],
                    full_attention_layer_ids=[0],
                    **common,
                )
                pool.register_mapping(torch.arange(SLOTS + page + 1))
            else:
                pool = MHATokenToKVPool(size=SLOTS, layer_num=2, enable_memory_saver=False, **common)
        runner.token_to_kv_pool = pool
        self.pool = pool
        release.publish(page_size=page)
        release.complete(runner, page)
        with _environment("SGLANG_USE_AITER_UNIFIED_ATTN", route == "unified"):
            self.backend = module.AiterAttnBackend(runner)
        self.runner = runner
        self.layer = RadixAttention(heads, dim, dim**-0.5, kv_heads, layer_id=0, v_head_dim=v_dim or -1)
        self._free = torch.randperm(SLOTS // page - 1, generator=torch.Generator().manual_seed(5)) + 1
        self._page = page
        self._used = 0
        self._next = 0
        self.kept: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def scales(self, k_scale: torch.Tensor | None, v_scale: torch.Tensor | None) -> None:
        """Give the layer its KV scales."""
        self.layer.k_scale, self.layer.v_scale = k_scale, v_scale

    def slots(self, start: int, count: int, request: int) -> torch.Tensor:
        """KV slots for tokens start … start+count of a request, in pages that lie apart."""
        table = self.runner.req_to_token_pool.req_to_token
        for position in range(start, start + count):
            if position % self._page == 0:
                first = int(self._free[self._used]) * self._page
                self._used += 1
                table[request, position : position + self._page] = torch.arange(first, first + self._page)
        return table[request, start : start + count].long()

    def batch(
        self,
        requests: dict[int, int],
        *,
        mode: ForwardMode = ForwardMode.EXTEND,
        rids: list[str] | None = None,
    ) -> ForwardBatch:
        """A ForwardBatch that gives each request (its index) so many new tokens after what it has."""
        indices = list(requests)
        prefixes = [self.kept[i][0].shape[0] if i in self.kept else 0 for i in indices]
        new = [requests[i] for i in indices]
        lengths = torch.tensor([p + n for p, n in zip(prefixes, new, strict=True)])
        locations = torch.cat(
            [self.slots(p, n, i) for i, p, n in zip(indices, prefixes, new, strict=True)],
        )
        forward_batch = ForwardBatch(
            forward_mode=mode,
            batch_size=len(indices),
            input_ids=torch.zeros(sum(new), dtype=torch.long),
            req_pool_indices=torch.tensor(indices),
            seq_lens=lengths,
            out_cache_loc=locations,
            seq_lens_sum=int(lengths.sum()),
            seq_lens_cpu=lengths.clone(),
            extend_num_tokens=sum(new),
            extend_seq_lens=torch.tensor(new, dtype=torch.int32),
            extend_prefix_lens=torch.tensor(prefixes, dtype=torch.int32),
            extend_prefix_lens_cpu=prefixes,
            extend_seq_lens_cpu=new,
            rids=rids if rids is not None else [f"request-{i}" for i in indices],
        )
        release.bind(self.runner, forward_batch)
        return forward_batch

    def extend(
        self,
        requests: dict[int, int],
        *,
        inputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None = None,
        seed: int = 0,
        std: float = 1.0,
        sinks: Any = None,
        save: bool = True,
        **options: Any,
    ) -> torch.Tensor:
        """Run one extend pass through the backend; returns (tokens, heads, dim) in fp32."""
        forward_batch = self.batch(requests, **options)
        tokens = sum(requests.values())
        q, k, v = inputs if inputs is not None else self.inputs(tokens, seed, std)
        at = 0
        for index, count in requests.items():
            piece = (k[at : at + count].clone(), v[at : at + count].clone())
            old = self.kept.get(index)
            self.kept[index] = piece if old is None else tuple(torch.cat(pair) for pair in zip(old, piece, strict=True))
            at += count
        self.backend.init_forward_metadata(forward_batch)
        out = self.backend.forward_extend(
            q.reshape(tokens, -1), k.clone(), v.clone(), self.layer, forward_batch, save, sinks
        )
        self.forward_batch = forward_batch
        return out.view(tokens, self.heads, -1).float()

    def inputs(self, tokens: int, seed: int, std: float = 1.0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """q, k, v as views into one fused projection, as a model makes them."""
        generator = torch.Generator().manual_seed(seed)
        width = (self.heads + 2 * self.kv_heads) * self.dim
        fused = (torch.randn(tokens, width, generator=generator) * std).to(self.backend.input_dtype)
        q, k, v = fused.split([self.heads * self.dim, self.kv_heads * self.dim, self.kv_heads * self.dim], dim=1)
        return q, k.view(tokens, self.kv_heads, self.dim), v.view(tokens, self.kv_heads, self.dim)

    def cache_bytes(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Copies of the layer's K and V buffers, as bytes."""
        pool = self.pool.full_kv_pool if self.route == "swa" else self.pool
        return pool.k_buffer[0].clone().view(torch.uint8), pool.v_buffer[0].clone().view(torch.uint8)


@contextmanager
def _environment(name: str, on: bool) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = "1" if on else "0"
    yield
    if before is None:
        del os.environ[name]
    else:
        os.environ[name] = before


def cast(x: torch.Tensor, scale: torch.Tensor | None) -> torch.Tensor:
    """What fp8 keeps of x at this scale, saturated, as fp32: the reference's own cast."""
    s = 1.0 if scale is None else float(scale)
    return (x.float() / s).clamp(-448, 448).to(FP8).float() * s


def reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
    *,
    quantised: bool = True,
) -> torch.Tensor:
    """fp32 causal attention of one sequence over the dequantised fp8 q, k, v.

    Args:
        q: (new tokens, heads, dim).
        k: (all tokens, kv heads, dim).
        v: (all tokens, kv heads, dim).

    Returns:
        (new tokens, heads, dim), fp32.
    """
    if quantised:
        q, k, v = cast(q, None), cast(k, k_scale), cast(v, v_scale)
    group = q.shape[1] // k.shape[1]
    k, v = (x.float().repeat_interleave(group, 1) for x in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q.float(), k) * q.shape[-1] ** -0.5
    new, old = q.shape[0], k.shape[0]
    scores.masked_fill_(torch.arange(old)[None] > torch.arange(new)[:, None] + (old - new), -math.inf)
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), v)


def relative_error(got: torch.Tensor, want: torch.Tensor) -> float:
    """Norm of the difference over the norm of the truth."""
    return float((got - want).norm() / want.norm())
