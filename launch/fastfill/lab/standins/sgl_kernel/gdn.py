"""Qwen3.5's linear attention (gated delta net) on a CPU, in torch: the operators that SGLang's CPU branch calls.

Names and argument orders are SGLang's; shapes: T tokens, HK key heads of dk, HV value heads of dv. SGLang's state pool
has shape (slots, HV, dv, dk) and is written in place.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

CHUNK = 64
"""Tokens a chunk, as in FLA; the states at chunk starts are what the mamba cache's extra_buffer strategy stores."""


def _gemma_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (scaled * (1.0 + weight.float())).to(x.dtype)


def fused_sigmoid_mul_cpu(x: torch.Tensor, gate: torch.Tensor, inplace: bool = True) -> torch.Tensor:
    """x times sigmoid(gate), the output gate of the full-attention layers."""
    result = (x.float() * torch.sigmoid(gate.reshape(x.shape).float())).to(x.dtype)
    return x.copy_(result) if inplace else result


def fused_qk_gemma_rmsnorm_cpu(
    q: torch.Tensor, k: torch.Tensor, q_weight: torch.Tensor, k_weight: torch.Tensor, eps: float, head_dim: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """RMS norm with weight 1 + w of each head of q and k; shapes (rows x heads, head_dim)."""
    return (
        _gemma_norm(q.reshape(-1, head_dim), q_weight, eps),
        _gemma_norm(k.reshape(-1, head_dim), k_weight, eps),
    )


def fused_qk_gemma_rmsnorm_with_gate_cpu(
    q_gate: torch.Tensor,
    k: torch.Tensor,
    q_weight: torch.Tensor,
    k_weight: torch.Tensor,
    eps: float,
    head_dim: int,
    num_heads: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The same where q and its gate are interleaved by head; returns (q, k, gate)."""
    pairs = q_gate.reshape(q_gate.shape[0], num_heads, 2 * head_dim)
    q, gate = pairs.split(head_dim, dim=-1)
    return (
        _gemma_norm(q.reshape(-1, head_dim), q_weight, eps),
        _gemma_norm(k.reshape(-1, head_dim), k_weight, eps),
        gate.reshape(-1, head_dim).contiguous(),
    )


def fused_qkvzba_split_reshape_cat_contiguous_cpu(
    qkvz: torch.Tensor, ba: torch.Tensor, heads_k: int, heads_v: int, dim_k: int, dim_v: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Cut the two input projections into (q|k|v, z, b, a)."""
    width = 2 * heads_k * dim_k + heads_v * dim_v
    z = qkvz[:, width:].reshape(-1, heads_v, dim_v)
    return qkvz[:, :width].contiguous(), z.contiguous(), ba[:, :heads_v].contiguous(), ba[:, heads_v:].contiguous()


def fused_gdn_gating_cpu(
    A_log: torch.Tensor, a: torch.Tensor, b: torch.Tensor, dt_bias: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The log decay g and the write strength beta, both (1, T, HV) fp32."""
    decay = -A_log.float().exp() * F.softplus(a.float() + dt_bias.float())
    return decay[None], torch.sigmoid(b.float())[None]


def fused_rmsnorm_gated_cpu(x: torch.Tensor, weight: torch.Tensor, z: torch.Tensor, eps: float) -> torch.Tensor:
    """RMS norm of x times silu(z)."""
    wide = x.float()
    scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()
    return (scaled * F.silu(z.float())).to(x.dtype)


def _delta_sequence(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor, beta: torch.Tensor, state: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]:
    """The gated delta rule over one sequence, 64 tokens at a time in closed form.

    The recurrence is S <- e^g S; u = beta (v - S k); S <- S + u k^T; o = S q. With G the running sum of g in a chunk,
    and S_0 the state at its start, u solves a unit lower-triangular system:
    u_t + beta_t sum_{i<t} e^(G_t-G_i) (k_t.k_i) u_i = beta_t v_t - beta_t e^(G_t) S_0 k_t.
    It is linear in S_0, so that it is solved for all chunks at once; only S_0 itself runs from chunk to chunk.

    Args:
        q, k: (HV, T, dk) fp32, normalised, q scaled.
        v: (HV, T, dv) fp32.
        g, beta: (HV, T) fp32.
        state: The state before the sequence, (HV, dv, dk) fp32.

    Returns:
        (o of shape (HV, T, dv), the state after the sequence, the states at the start of each chunk).
    """
    heads, tokens, _ = q.shape
    chunks = -(-tokens // CHUNK)

    def cut(x: torch.Tensor) -> torch.Tensor:
        # Padding of zeros writes nothing (beta 0) and decays nothing (g 0).
        padded = x.new_zeros(heads, chunks * CHUNK, *x.shape[2:])
        padded[:, :tokens] = x
        return padded.reshape(heads, chunks, CHUNK, *x.shape[2:])

    q, k, v, g, beta = cut(q), cut(k), cut(v), cut(g), cut(beta)[..., None]
    total = g.cumsum(-1)
    # The mask goes in before exp: above the diagonal the difference is positive and may overflow.
    gap = (total[..., :, None] - total[..., None, :]).masked_fill(
        torch.ones(CHUNK, CHUNK, dtype=torch.bool).triu(1), float("-inf")
    )
    decay = torch.exp(gap)
    grown = torch.exp(total)[..., None]
    lower = (beta * decay * (k @ k.transpose(-1, -2))).tril(-1) + torch.eye(CHUNK)
    solved = torch.linalg.solve_triangular(
        lower, torch.cat([beta * v, beta * grown * k], -1), upper=False, unitriangular=True
    )
    u_free, u_state = solved.split([v.shape[-1], k.shape[-1]], -1)
    attention = decay * (q @ k.transpose(-1, -2))
    q_grown = grown * q
    k_left = torch.exp(total[..., -1:] - total)[..., None] * k
    last = torch.exp(total[..., -1])[..., None, None]
    out = torch.empty_like(v)
    starts = []
    for chunk in range(chunks):
        starts.append(state)
        turned = state.transpose(1, 2)
        u = u_free[:, chunk] - u_state[:, chunk] @ turned
        out[:, chunk] = q_grown[:, chunk] @ turned + attention[:, chunk] @ u
        state = last[:, chunk] * state + u.transpose(1, 2) @ k_left[:, chunk]
    return out.reshape(heads, chunks * CHUNK, -1)[:, :tokens], state, starts


def chunk_gated_delta_rule_cpu(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    initial_state: torch.Tensor,
    initial_state_indices: torch.Tensor | None = None,
    cu_seqlens: torch.Tensor | None = None,
    head_first: bool = False,
    use_qk_l2norm_in_kernel: bool = True,
    scale: float | None = None,
    **_ignored: Any,
) -> tuple[torch.Tensor, None, torch.Tensor]:
    """The gated delta rule over packed sequences.

    Args:
        q, k: (1, T, HK, dk). v: (1, T, HV, dv). g, beta: (1, T, HV).
        initial_state: The state pool, (slots, HV, dv, dk), written in place.
        initial_state_indices: A slot a sequence, shape (batch,); None for slot i.
        cu_seqlens: Shape (batch + 1,).

    Returns:
        (o (1, T, HV, dv), None, the states at the start of every chunk (1, chunks, HV, dv, dk)).
    """
    if head_first or not use_qk_l2norm_in_kernel:
        raise NotImplementedError("the lab's gated delta rule is token-first with normalised q and k")
    assert cu_seqlens is not None
    ratio = v.shape[2] // q.shape[2]
    scale = q.shape[-1] ** -0.5 if scale is None else scale

    def by_head(x: torch.Tensor, repeats: int = 1) -> torch.Tensor:
        return x[0].float().repeat_interleave(repeats, 1).transpose(0, 1)

    queries = F.normalize(by_head(q, ratio), dim=-1, eps=1e-6) * scale
    keys = F.normalize(by_head(k, ratio), dim=-1, eps=1e-6)
    values, decays, strengths = by_head(v), by_head(g), by_head(beta)
    out = torch.empty(v.shape, dtype=q.dtype)
    starts = cu_seqlens.tolist()
    at_chunk_start = []
    for sequence in range(len(starts) - 1):
        slot = sequence if initial_state_indices is None else int(initial_state_indices[sequence])
        part = slice(starts[sequence], starts[sequence + 1])
        if part.start == part.stop:
            continue
        answer, state, at_start = _delta_sequence(
            queries[:, part],
            keys[:, part],
            values[:, part],
            decays[:, part],
            strengths[:, part],
            # A copy: the slot is written below, and the states that are returned must not change with it.
            initial_state[slot].to(torch.float32, copy=True),
        )
        at_chunk_start += at_start
        out[0, part] = answer.transpose(0, 1).to(out.dtype)
        initial_state[slot] = state.to(initial_state.dtype)
    return out, None, torch.stack(at_chunk_start)[None]


def fused_sigmoid_gating_delta_rule_update_cpu(
    A_log: torch.Tensor,
    dt_bias: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    initial_state_source: torch.Tensor,
    initial_state_indices: torch.Tensor,
    cu_seqlens: torch.Tensor,
    use_qk_l2norm_in_kernel: bool = True,
    softplus_beta: float = 1.0,
    softplus_threshold: float = 20.0,
    **_ignored: Any,
) -> torch.Tensor:
    """Decode: the same rule, one token a sequence, gates included."""
    decay, strength = fused_gdn_gating_cpu(A_log, a, b, dt_bias)
    return chunk_gated_delta_rule_cpu(
        q, k, v, decay, strength, initial_state_source, initial_state_indices, cu_seqlens
    )[0]


def causal_conv1d_fn_cpu(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str = "silu",
    conv_states: torch.Tensor | None = None,
    has_initial_state: torch.Tensor | None = None,
    cache_indices: torch.Tensor | None = None,
    query_start_loc: torch.Tensor | None = None,
    seq_lens_cpu: Any = None,
    **_ignored: Any,
) -> torch.Tensor:
    """Depthwise causal convolution over packed sequences.

    Args:
        x: (channels, T). weight: (channels, width).
        conv_states: (slots, channels, width - 1), written in place with each sequence's last inputs.
        has_initial_state: Whether a sequence continues its slot's state, shape (batch,).
    """
    assert conv_states is not None and has_initial_state is not None
    assert cache_indices is not None and query_start_loc is not None
    history = weight.shape[-1] - 1
    starts = query_start_loc.tolist()
    out = torch.empty_like(x)
    for sequence in range(len(starts) - 1):
        slot = int(cache_indices[sequence])
        part = slice(starts[sequence], starts[sequence + 1])
        if part.start == part.stop:
            continue
        before = conv_states[slot].float()
        if not bool(has_initial_state[sequence]):
            before = torch.zeros_like(before)
        line = torch.cat([before[:, before.shape[1] - history :], x[:, part].float()], 1)
        result = F.conv1d(
            line[None], weight.float()[:, None], None if bias is None else bias.float(), groups=x.shape[0]
        )[0]
        out[:, part] = (F.silu(result) if activation in ("silu", "swish") else result).to(x.dtype)
        conv_states[slot] = line[:, line.shape[1] - history :].to(conv_states.dtype)
    return out


def causal_conv1d_update_cpu(
    x: torch.Tensor,
    conv_state: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str = "silu",
    conv_state_indices: torch.Tensor | None = None,
    **_ignored: Any,
) -> torch.Tensor:
    """One step of the convolution; x is (batch, channels)."""
    assert conv_state_indices is not None
    slots = conv_state_indices.long()
    line = torch.cat([conv_state[slots].float(), x.float().unsqueeze(-1)], -1)
    result = (line[..., -weight.shape[-1] :] * weight.float()).sum(-1)
    if bias is not None:
        result = result + bias.float()
    conv_state[slots] = line[..., 1:].to(conv_state.dtype)
    return (F.silu(result) if activation in ("silu", "swish") else result).to(x.dtype)


OPERATORS = (
    causal_conv1d_fn_cpu,
    causal_conv1d_update_cpu,
    chunk_gated_delta_rule_cpu,
    fused_gdn_gating_cpu,
    fused_qk_gemma_rmsnorm_cpu,
    fused_qk_gemma_rmsnorm_with_gate_cpu,
    fused_qkvzba_split_reshape_cat_contiguous_cpu,
    fused_rmsnorm_gated_cpu,
    fused_sigmoid_gating_delta_rule_update_cpu,
    fused_sigmoid_mul_cpu,
)


def register() -> None:
    """Make the operators attributes of ``torch.ops.sgl_kernel``, where SGLang looks them up."""
    for operator in OPERATORS:
        setattr(torch.ops.sgl_kernel, operator.__name__, operator)
