"""The deployment conditions, each a pure function of the facts: SGLang's own tests, ours, and aiter's behind them.

A condition that SGLang's gate tests ``stops`` the path, which is harmless. One that only aiter tests lets the call
through: the kernel then raises, or answers wrongly.
"""

from __future__ import annotations

from collections.abc import Callable

from fastfill.explaining.facts import Effect, Facts, Result, attention_ranks, rank_heads
from sglang_fastfill.conditions import FLAG, GQA_RATIOS, HEAD_DIM, NEAR_MISS_FLAGS, RIVAL_FLAG
from sglang_fastfill.state import truthy

_GATE = "0.5.17 aiter_backend.py:2341-2352 (facts/sglang.md 3.1)"
_AITER = "aiter/ops/mha.py:2816-2860 (facts/aiter.md section 1)"
_OURS = "patches/sglang_fastfill/gate.py"
_FP8 = ("fp8_e4m3", "fp8_e5m2", "float8_e4m3fn")


def _behind(facts: Facts, otherwise: Effect) -> Effect:
    """What a condition does that SGLang's own gate does not test, and ours does."""
    return otherwise if facts.builtin else "stops"


def backend_not_aiter(facts: Facts) -> Result:
    source = "facts/sglang.md 2.1: images set SGLANG_USE_AITER=1; 0.5.16 server_args.py:4924"
    backend = facts.launch.backend
    if backend and backend != "aiter":
        return Result("backend_not_aiter", "fail", f"prefill attention backend {backend}", source, "stops")
    if facts.env is not None and not truthy(facts.env.get("SGLANG_USE_AITER", "1")):
        value = f"SGLANG_USE_AITER={facts.env['SGLANG_USE_AITER']}"
        return Result("backend_not_aiter", "fail", value, source, "stops")
    return Result("backend_not_aiter", "pass", "aiter" if backend else "aiter, SGLang's choice on HIP", source)


def unsupported_topology(facts: Facts) -> Result:
    launch, source = facts.launch, "DESIGN section 3: refused for now"
    value = f"nodes {launch.nodes}, pipeline {launch.pp}, disaggregation {launch.disaggregation or 'none'}"
    bad = launch.nodes > 1 or launch.pp > 1 or launch.disaggregation
    return Result("unsupported_topology", "fail" if bad else "pass", value, source, "stops" if bad else "")


def flag_off(facts: Facts) -> Result:
    release = facts.release
    if release.path == "unknown":
        return Result("flag_off", "unknown", release.source, "", fix="name a release of the table: --sglang 0.5.23")
    if release.path == "none":
        value = f"SGLang {release.sglang} has no head-dim-256 path, and no flag for one"
        return Result(
            "flag_off", "fail", value, release.source, "stops", "use the stack sglang-0.5.16, or SGLang 0.5.20"
        )
    if facts.builtin:
        return Result("flag_off", "pass", f"SGLang {release.sglang} has the path always on; no flag", release.source)
    if facts.env is None:
        return _untold("flag_off")
    if truthy(facts.env.get(FLAG)):
        return Result("flag_off", "pass", f"{FLAG}={facts.env[FLAG]}", _OURS)
    misses = [name for name in NEAR_MISS_FLAGS if name in facts.env]
    value = f"{FLAG} is {facts.env.get(FLAG, 'not set')}"
    if misses:
        value += f"; {misses[0]} is set and does nothing"
    return Result("flag_off", "fail", value, _OURS, "stops")


def operator_off(facts: Facts) -> Result:
    if facts.operator_off:
        return Result("operator_off", "fail", "the kill switch is thrown", _OURS, "stops")
    value = "the switch is on" if facts.operator_off is False else "on unless somebody has thrown it"
    return Result("operator_off", "pass", value if facts.patched else "this SGLang has no kill switch", _OURS)


def arch_not_gfx950(facts: Facts) -> Result:
    if facts.gpu != "gfx950":
        return Result("arch_not_gfx950", "fail", f"the GPU is {facts.gpu}", _GATE, "stops")
    if facts.env is None:
        return _untold("arch_not_gfx950")
    source = "aiter chip_info.py:47-57: the last entry of GPU_ARCHS (facts/aiter.md section 4)"
    archs = facts.env.get("GPU_ARCHS", "").strip()
    last = archs.split(";")[-1].strip()
    if last and last not in ("gfx950", "native"):
        value = f"GPU_ARCHS={archs}: aiter believes {last}"
        return Result("arch_not_gfx950", "fail", value, source, _behind(facts, "crashes"), "unset GPU_ARCHS")
    return Result("arch_not_gfx950", "pass", f"gfx950; GPU_ARCHS {archs or 'not set'}", source)


def kernel_missing(facts: Facts) -> Result:
    aiter = facts.aiter
    if aiter.kernel == "unknown":
        return Result("kernel_missing", "unknown", aiter.detail, aiter.source, fix="give --aiter DIR or COMMIT")
    if aiter.kernel == "missing":
        return Result("kernel_missing", "fail", aiter.detail, aiter.source, _behind(facts, "crashes"))
    return Result("kernel_missing", "pass", aiter.detail, aiter.source)


def kernel_broken(facts: Facts) -> Result:
    aiter = facts.aiter
    if aiter.kernel == "unknown":
        return Result("kernel_broken", "unknown", aiter.detail, aiter.source, fix="give --aiter DIR or COMMIT")
    if aiter.kernel == "broken":
        return Result("kernel_broken", "fail", aiter.detail, aiter.source, _behind(facts, "wrong"))
    return Result("kernel_broken", "pass", aiter.detail, aiter.source)


def ck_disabled(facts: Facts) -> Result:
    if facts.env is None:
        return _untold("ck_disabled")
    value = facts.env.get("ENABLE_CK", "")
    source = "facts/aiter.md section 1: without CK the function goes to Triton"
    if value == "0":
        return Result("ck_disabled", "fail", "ENABLE_CK=0", source, "stops")
    return Result("ck_disabled", "pass", f"ENABLE_CK {value or 'not set'}", source)


def head_dim_not_256(facts: Facts) -> Result:
    if facts.layers.kind == "linear":
        return Result("head_dim_not_256", "fail", "no layer has softmax attention", _GATE, "stops")
    qk, v = facts.layers.qk_head_dim, facts.layers.v_head_dim
    known = [size for size in (qk, v) if size is not None]
    if any(size != HEAD_DIM for size in known):
        return Result("head_dim_not_256", "fail", f"qk {qk or 'unknown'}, v {v or 'unknown'}", _GATE, "stops")
    if len(known) < 2:
        return _unknown(facts, "head_dim_not_256", "head_dim is missing")
    return Result("head_dim_not_256", "pass", "qk 256, v 256", _GATE)


def gqa_ratio(facts: Facts) -> Result:
    q_heads, kv_heads = facts.model.q_heads, facts.layers.kv_heads
    if q_heads is None or kv_heads is None:
        return _unknown(facts, "gqa_ratio", "num_attention_heads is missing")
    ranks = attention_ranks(facts.launch)
    heads = rank_heads(q_heads, kv_heads, ranks)
    if heads is None:
        value = f"{q_heads} q and {kv_heads} kv heads do not divide over {ranks} ranks: SGLang refuses to start"
        return Result(
            "gqa_ratio", "fail", value, "facts/sglang.md 1.2", "refused", "choose a --tp that divides the heads"
        )
    ratio, rest = divmod(heads[0], heads[1])
    value = f"{heads[0]} q to {heads[1]} kv heads a rank: {heads[0] / heads[1]:g}"
    source = "facts/aiter.md section 0 (disassembled); sgl-project/sglang#38467"
    if not rest and ratio in GQA_RATIOS:
        return Result("gqa_ratio", "pass", value, source)
    if facts.release.path == "unknown":
        return Result("gqa_ratio", "unknown", f"{value}; whether this release tests it is not known", source)
    power_of_two = not rest and ratio & (ratio - 1) == 0
    if facts.builtin and facts.paged and power_of_two:
        return Result(
            "gqa_ratio", "unknown", f"{value}; the paged kernel takes it, unverified", "facts/aiter.md section 6"
        )
    if facts.builtin and not facts.release.gqa_guard:
        return Result(
            "gqa_ratio", "fail", value, source, "wrong" if power_of_two else "crashes", "use SGLang 0.5.20 or newer"
        )
    return Result("gqa_ratio", "fail", value, source, "stops")


def sliding_window(facts: Facts) -> Result:
    if "sliding_window" in facts.model.missing:
        return _unknown(facts, "sliding_window")
    full, sliding = facts.model.count("full") + facts.model.count("shared"), facts.model.count("sliding")
    value = f"{sliding} layers have a window ({facts.model.window or 'of unknown size'}), {full} have none"
    if facts.layers.kind == "sliding":
        return Result("sliding_window", "fail", value, _GATE, "stops")
    linear = facts.model.count("linear")
    plain = f"{full} full-attention layers" + (f", {linear} linear ones" if linear else "")
    return Result("sliding_window", "pass", value if sliding else plain, _GATE)


def attention_sinks(facts: Facts) -> Result:
    if facts.model.sinks is None:
        return _unknown(facts, "attention_sinks")
    source = f"{_GATE}; 0.5.16 configs/model_config.py:710-727"
    if facts.model.sinks:
        return Result("attention_sinks", "fail", f"{facts.model.architecture} has them", source, "stops")
    return Result("attention_sinks", "pass", "none", source)


def logit_softcap(facts: Facts) -> Result:
    if "logit_softcap" in facts.model.missing:
        return _unknown(facts, "logit_softcap")
    cap = facts.model.softcap
    status, effect = ("fail", "stops") if cap else ("pass", "")
    return Result("logit_softcap", status, f"{cap:g}" if cap else "none", _GATE, effect)  # type: ignore[arg-type]


def cross_attention(facts: Facts) -> Result:
    kind = facts.model.attention
    if not kind:
        return _unknown(facts, "cross_attention")
    if kind == "decoder":
        return Result("cross_attention", "pass", "causal self-attention", _OURS)
    if facts.patched:
        return Result("cross_attention", "fail", f"SGLang marks these layers {kind}", _OURS, "stops")
    if kind == "bidirectional":
        value = "marked bidirectional; the aiter backend takes prompts as causal either way"
        return Result(
            "cross_attention",
            "pass",
            value,
            "0.5.16 models/gemma3_causal.py:227; triton_backend.py:1277 alone reads it",
        )
    return Result("cross_attention", "unknown", f"{kind} attention, which this SGLang's gate does not test", _GATE)


def mla(facts: Facts) -> Result:
    if "mla" in facts.model.missing:
        return _unknown(facts, "mla")
    source = "0.5.16 configs/model_config.py:788-820"
    if facts.model.mla:
        return Result("mla", "fail", "kv_lora_rank: multi-head latent attention", source, "stops")
    return Result("mla", "pass", "no", source)


def kv_dtype_not_fp8(facts: Facts) -> Result:
    given, source = facts.launch.kv_dtype, "facts/sglang.md 3.9; 0.5.16 mem_cache/kv_cache_dtype.py"
    if given in _FP8:
        value = f"{given} (the same as fp8_e4m3 on HIP)" if given == "fp8_e5m2" else given
        return Result("kv_dtype_not_fp8", "pass", value, source)
    if given == "auto" and facts.model.fp8_kv:
        return Result("kv_dtype_not_fp8", "pass", "auto, and the checkpoint says kv_cache_quant_algo FP8", source)
    return Result("kv_dtype_not_fp8", "fail", given, source, "stops")


def no_kv_input(facts: Facts) -> Result:
    if "no_kv_input" in facts.model.missing:
        return _unknown(facts, "no_kv_input")
    if facts.layers.kind == "shared":
        return Result("no_kv_input", "fail", "these layers share another layer's KV", _OURS, "stops")
    shared = facts.model.count("shared")
    return Result("no_kv_input", "pass", f"{shared} layers share another's KV" if shared else "none shares KV", _OURS)


def context_parallel(facts: Facts) -> Result:
    size = facts.launch.cp
    if size <= 1:
        return Result("context_parallel", "pass", "1", _OURS)
    if facts.builtin:
        return Result("context_parallel", "unknown", f"{size}; this SGLang's gate does not test it", _GATE)
    return Result("context_parallel", "fail", str(size), _OURS, "stops")


def graph_capture(facts: Facts) -> Result:
    source = "facts/sglang.md section 7: 0.5.16 prefill_cuda_graph_runner.py:893"
    if facts.launch.full_graph:
        return Result("graph_capture", "fail", "a full prefill graph is asked for: SGLang raises", source, "refused")
    return Result("graph_capture", "pass", "no full prefill graph", source)


def rival_path(facts: Facts) -> Result:
    source = "facts/sglang.md section 0 item 1: no wheel reads it"
    given = (facts.env or {}).get(RIVAL_FLAG)
    return Result("rival_path", "pass", f"{RIVAL_FLAG}={given}: nothing reads it" if given else "not set", source)


def _untold(id: str) -> Result:
    return Result(
        id, "unknown", "a server does not tell its environment", "", fix="repeat what it was given: --env K=V"
    )


def _unknown(facts: Facts, id: str, why: str = "") -> Result:
    detail = facts.model.missing.get(id, why)
    return Result(id, "unknown", detail, "config.json", fix="give a complete config.json of an architecture known here")


CONDITIONS: tuple[Callable[[Facts], Result], ...] = (
    backend_not_aiter,
    unsupported_topology,
    flag_off,
    operator_off,
    arch_not_gfx950,
    kernel_missing,
    kernel_broken,
    ck_disabled,
    head_dim_not_256,
    gqa_ratio,
    sliding_window,
    attention_sinks,
    logit_softcap,
    cross_attention,
    mla,
    kv_dtype_not_fp8,
    no_kv_input,
    context_parallel,
    graph_capture,
    rival_path,
)
