"""How much of a GPU SGLang may fill with weights and KV cache, so that the longest single pass still fits.

SGLang's own estimate (0.5.16 server_args.py:4055-4096) is kept term by term, except for one: with chunking off it
counts --max-prefill-tokens only, although a longer prompt is admitted alone and runs in one pass.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

MIB_PER_GIB = 1024
_CONSTANT_MIB = 512.0
_FLOOR_MIB = 10 * 1024.0
_FLOOR_FROM_GPU_MIB = 60 * 1024.0
_LEAST_TOKENS = 2048


class Line(NamedTuple):
    """One term of the sum.

    Attributes:
        what: What the memory is for.
        mib: How much, in MiB a GPU.
        how: How it was computed.
    """

    what: str
    mib: float
    how: str


class Plan(NamedTuple):
    """The sum and what follows from it.

    Attributes:
        gpu_mib: Memory of one GPU, in MiB.
        reserved: The terms that are kept free of weights and KV cache.
        fraction: The value for --mem-fraction-static, rounded down to three digits.
        single_pass_tokens: The tokens of the largest pass that it allows for.
        weights_mib: Weights on one GPU, in MiB; None when not known.
    """

    gpu_mib: float
    reserved: list[Line]
    fraction: float
    single_pass_tokens: int
    weights_mib: float | None

    @property
    def cache_mib(self) -> float | None:
        """What is left for the KV cache on one GPU, in MiB; None when the weights are not known."""
        return None if self.weights_mib is None else self.gpu_mib * self.fraction - self.weights_mib

    def table(self) -> list[str]:
        """The sum as lines of text."""
        rows = [("one GPU", self.gpu_mib, "")]
        rows += [(f"- {line.what}", line.mib, line.how) for line in self.reserved]
        static = self.gpu_mib * self.fraction
        rows.append(("= weights and KV cache", static, f"--mem-fraction-static {self.fraction:.3f}"))
        if self.weights_mib is not None:
            rows.append(("  of which weights", self.weights_mib, "the weight files, split over the GPUs"))
            rows.append(("  of which KV cache", static - self.weights_mib, ""))
        return [f"{what:<24}{mib / MIB_PER_GIB:>8.1f} GiB  {how}".rstrip() for what, mib, how in rows]


def largest_pass(*, chunk: int, max_prefill_tokens: int, longest_prompt: int) -> tuple[int, str]:
    """Tokens of the largest prefill pass that the scheduler can make, and why.

    Args:
        chunk: --chunked-prefill-size; zero or less is off.
        max_prefill_tokens: --max-prefill-tokens. It bounds a batch, but a longer prompt is admitted alone.
        longest_prompt: The context length that is served.
    """
    if chunk > 0:
        return max(chunk, _LEAST_TOKENS), f"the chunk, {max(chunk, _LEAST_TOKENS)} tokens"
    if longest_prompt > max_prefill_tokens:
        return max(longest_prompt, _LEAST_TOKENS), f"the longest prompt, {max(longest_prompt, _LEAST_TOKENS)} tokens"
    return max(max_prefill_tokens, _LEAST_TOKENS), f"a full batch, {max(max_prefill_tokens, _LEAST_TOKENS)} tokens"


def plan(
    *,
    gpu_mib: float,
    single_pass: tuple[int, str],
    mib_per_token: float = 1.5,
    tp: int = 1,
    dp: int = 1,
    dp_attention: bool = False,
    decode_graph_batch: int = 512,
    vision: dict[str, Any] | None = None,
    weight_bytes: int | None = None,
) -> Plan:
    """Add up what a GPU must keep free.

    Args:
        gpu_mib: Memory of one GPU, in MiB.
        single_pass: From :func:`largest_pass`.
        mib_per_token: Activations of one prefill token, in MiB (SGLang's estimate is 1.5 for every model).
        tp: Tensor parallel size.
        dp: Data parallel size; counts with ``dp_attention`` only.
        dp_attention: Whether attention is data parallel.
        decode_graph_batch: The largest batch of the decode graphs (SGLang: 512 from 160 GB on).
        vision: The model's vision config, for which SGLang lowers the fraction further.
        weight_bytes: Bytes of all weights, split evenly over ``tp``.

    Returns:
        The plan. Its fraction may be zero or negative: the caller decides what to say.
    """
    tokens, why = single_pass
    graphs = decode_graph_batch * 2.0
    graphs_how = f"largest decode batch {decode_graph_batch} x 2 MiB"
    if dp_attention:
        graphs += decode_graph_batch * dp * (4.5 if decode_graph_batch > 300 else 3.0)
        graphs_how += f", and padding for {dp} attention ranks"
    lines = [
        Line("activations", tokens * mib_per_token, f"{why} x {mib_per_token:g} MiB"),
        Line("constant", _CONSTANT_MIB, "the attention backend's buffers"),
        Line("parallel buffers", tp / 8 * MIB_PER_GIB, f"tp {tp} / 8 x 1 GiB"),
        Line("decode graphs", graphs, graphs_how),
    ]
    total = sum(line.mib for line in lines)
    if gpu_mib > _FLOOR_FROM_GPU_MIB and total < _FLOOR_MIB:
        lines.append(Line("floor", _FLOOR_MIB - total, "at least 10 GiB on a GPU of more than 60 GiB"))
        total = _FLOOR_MIB
    if vision is not None:
        share = (gpu_mib - total) * (1 - _vision_factor(vision))
        lines.append(Line("image encoder", share, f"{1 - _vision_factor(vision):.1%} of the rest"))
        total += share
    fraction = math.floor((gpu_mib - total) / gpu_mib * 1000) / 1000
    weights = None if weight_bytes is None else weight_bytes / 2**20 / tp
    return Plan(gpu_mib, lines, fraction, tokens, weights)


def _vision_factor(vision: dict[str, Any]) -> float:
    """SGLang's factor for models that take images (0.5.16 server_args.py:7954-7990)."""
    layers = int(vision.get("num_hidden_layers", 24))
    hidden = int(vision.get("hidden_size", 1024))
    complexity = layers * hidden**2 / (24 * 1024**2)
    return 0.95 * max(0.8, min(1.05, 1.0 - 0.1 * (complexity - 1.0)))
