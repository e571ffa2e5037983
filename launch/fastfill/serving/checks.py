"""Settings that contradict each other or keep the fast path from firing, found before a 397B model is loaded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Literal, NamedTuple

from fastfill.explaining.facts import rank_heads
from fastfill.serving import arguments
from fastfill.serving.model import ModelFacts
from fastfill.serving.settings import Settings
from sglang_fastfill.conditions import (
    ADDRESS_LIMIT,
    BY_ID,
    BYTES_PER_HEAD_ROW,
    FLAG,
    GQA_RATIOS,
    HEAD_DIM,
    NEAR_MISS_FLAGS,
    RIVAL_FLAG,
)

Severity = Literal["refuse", "warn", "note"]
_DEFAULT_CHUNK = 16384
_DEFAULT_MAX_PREFILL = 16384
PLUGIN = "fastfill"


class Finding(NamedTuple):
    """One thing to say about the settings.

    Attributes:
        id: A condition id where one exists (``sglang_fastfill.conditions``), else a name of this module's own.
        severity: ``refuse`` stops the launch, ``warn`` and ``note`` are said on stderr.
        what: What was found, with the values.
        fix: What to do about it.
    """

    id: str
    severity: Severity
    what: str
    fix: str


class Installed(NamedTuple):
    """What is known of the installation that will serve; None everywhere when it was not looked at.

    Attributes:
        sglang: Its version.
        paged_kernel: Whether aiter has the paged head-dim-256 kernel (aiter #4971).
    """

    sglang: str | None = None
    paged_kernel: bool | None = None


def check(settings: Settings, model: ModelFacts | None, installed: Installed | None = None) -> list[Finding]:
    """Every finding. With the flag off, what only keeps the path from firing is not said: it is not wanted.

    Raises:
        UsageError: A flag that is looked at is not a whole number.
    """
    found = list(_always(settings, installed or Installed()))
    if settings.env_on(FLAG):
        found += [*_deployment(settings), *_batch(settings), *_model(settings, model)]
    return found


def allow(findings: list[Finding], ids: list[str]) -> list[Finding]:
    """The findings with refusals that the user allows turned into warnings; ``all`` allows every one."""
    return [
        finding._replace(severity="warn")
        if finding.severity == "refuse" and (finding.id in ids or "all" in ids)
        else finding
        for finding in findings
    ]


def _stops(id: str, what: str, severity: Severity = "refuse", fix: str = "") -> Finding:
    return Finding(id, severity, what, fix or BY_ID[id].fix)


def _chunk(settings: Settings) -> int:
    return settings.number("chunked-prefill-size", _DEFAULT_CHUNK)


def _always(settings: Settings, installed: Installed) -> Iterator[Finding]:
    """What is wrong whether or not the path is wanted."""
    yield from _names(settings, installed)
    chunk, page = _chunk(settings), settings.number("page-size", 1)
    dp = settings.number("dp-size", 1) if settings.given("enable-dp-attention") else 1
    each = chunk // dp if chunk > 0 else chunk
    if page < 1 or dp < 1:
        yield Finding("not_positive", "refuse", f"--page-size {page}, --dp-size {dp}", "give numbers of 1 or more")
    elif chunk > 0 and each % page:
        share = f"--chunked-prefill-size {chunk}" + (f" divided by dp {dp} is {each}, which" if dp > 1 else "")
        yield Finding(
            "chunk_not_page_multiple",
            "refuse",
            f"{share} is not a multiple of --page-size {page}; SGLang would stop at its start",
            f"use {max(each // page, 1) * page * dp}",
        )
    for name in NEAR_MISS_FLAGS:
        if settings.env.get(name):
            state = "is set by the profile" if settings.env_on(FLAG) else "is not set"
            yield _stops("flag_off", f"{name} does nothing; the flag is {FLAG}, which {state}", "warn", f"unset {name}")
    plugins = settings.env.get("SGLANG_PLUGINS", "")
    if plugins and PLUGIN not in [name.strip() for name in plugins.split(",")]:
        yield Finding(
            "plugin_excluded",
            "refuse",
            f"SGLANG_PLUGINS={plugins} keeps fastfill's plugin out: nothing could be proven",
            f"unset SGLANG_PLUGINS, or add {PLUGIN} to it",
        )
    if not settings.given("enable-metrics"):
        yield Finding("metrics_off", "warn", "without --enable-metrics, prove has only one witness", "add the flag")
    if settings.given("config"):
        yield Finding("config_file", "warn", "the settings in the --config file are not checked", "use flags")
    if page == 64 and settings.env.get("SGLANG_AITER_PAGED_PREFILL_ASM", "1").lower() in ("1", "true"):
        yield from _paged(installed)


def _names(settings: Settings, installed: Installed) -> Iterator[Finding]:
    """Flags that SGLang's parser would refuse, or that nobody here can judge."""
    release = (installed.sglang or "").partition("+")[0]
    if unchecked := arguments.unchecked(release):
        yield Finding("flags_not_checked", "note", unchecked, "look at SGLang's own help for the release")
    words = (flag.words[0] for flag in settings.flags)
    for one in arguments.misspelt(words, release):
        fix = f"write {one.meant[0]}" if one.meant else "leave it out"
        yield Finding("flag_unknown", "refuse", one.says(arguments.whose(release)), fix)


def _paged(installed: Installed) -> Iterator[Finding]:
    parts = (installed.sglang or "").split(".")
    if len(parts) >= 3 and parts[2].isdigit() and tuple(map(int, parts[:3])) < (0, 5, 21):
        return
    if installed.paged_kernel is not True:
        known = "has no" if installed.paged_kernel is False else "may have no"
        yield _stops(
            "kernel_missing",
            f"--page-size 64 makes SGLang >= 0.5.21 call the paged kernel, which this aiter {known} (aiter #4971)",
            "refuse" if installed.paged_kernel is False else "warn",
            "use --page-size 16, or set SGLANG_AITER_PAGED_PREFILL_ASM=0",
        )


def _deployment(settings: Settings) -> Iterator[Finding]:
    env = settings.env
    if not settings.env_on("SGLANG_USE_AITER"):
        yield _stops("backend_not_aiter", "SGLANG_USE_AITER is not 1")
    backend = settings.text("attention-backend", "(SGLang's choice)")
    prefill = settings.text("prefill-attention-backend", backend)
    if prefill != "aiter":
        yield _stops("backend_not_aiter", f"the prefill attention backend is {prefill}")
    elif settings.text("decode-attention-backend", "aiter") != "aiter":
        decode = settings.text("decode-attention-backend")
        yield _stops("backend_not_aiter", f"decode uses {decode}: a split backend has not been proven", "warn")
    for name, least in (("nnodes", 1), ("pp-size", 1)):
        if settings.number(name, 1) > least:
            yield _stops("unsupported_topology", f"--{name} {settings.number(name, 1)}")
    if settings.text("disaggregation-mode", "null") != "null":
        yield _stops("unsupported_topology", f"--disaggregation-mode {settings.text('disaggregation-mode')}")
    archs = [arch for arch in env.get("GPU_ARCHS", "").split(";") if arch]
    if archs and archs[-1] not in ("gfx950", "native"):
        yield _stops("arch_not_gfx950", f"GPU_ARCHS={env['GPU_ARCHS']}: aiter takes the last entry, {archs[-1]}")
    if env.get("ENABLE_CK", "1").strip() == "0":
        yield _stops("ck_disabled", "ENABLE_CK=0")
    kv = settings.text("kv-cache-dtype", "auto")
    if kv != "fp8_e4m3":
        yield _stops("kv_dtype_not_fp8", f"--kv-cache-dtype {kv}")
    if settings.given("enable-prefill-cp") or settings.number("attn-cp-size", 1) > 1:
        yield _stops("context_parallel", "prefill context parallelism is on")
    if _prefill_graph(settings) == "full":
        yield _stops("graph_capture", "a full prefill graph is asked for")
    if env.get(RIVAL_FLAG, "").lower() in ("1", "true"):
        yield _stops("rival_path", f"{RIVAL_FLAG} is set; no released SGLang reads it", "warn")


def _prefill_graph(settings: Settings) -> str:
    try:
        config = json.loads(settings.text("cuda-graph-config", "{}"))
        prefill = config.get("prefill") if isinstance(config, dict) else None
        named = prefill.get("backend") if isinstance(prefill, dict) else None
    except ValueError:
        named = None
    return str(named or settings.text("cuda-graph-backend-prefill"))


def _batch(settings: Settings) -> Iterator[Finding]:
    chunk = _chunk(settings)
    if settings.given("enable-mixed-chunk"):
        if chunk > 0:
            yield _stops("prefix_mixed", "--enable-mixed-chunk: most batches carry a decode request")
        else:
            yield _stops("prefix_mixed", "--enable-mixed-chunk does nothing while chunking is off", "warn")
    if chunk > 0:
        dp = settings.number("dp-size", 1) if settings.given("enable-dp-attention") else 1
        if dp > 1:
            yield _stops("prefix_chunk", f"DP attention divides the chunk by {dp}: {chunk // dp} tokens a rank", "warn")
        yield _stops(
            "prefix_chunk",
            f"prompts are split every {chunk // max(dp, 1)} tokens; only a batch of first chunks takes the path",
            "note",
        )


def _model(settings: Settings, model: ModelFacts | None) -> Iterator[Finding]:
    if model is None or model.q_heads is None:
        return
    if model.head_dim not in (None, HEAD_DIM):
        yield _stops("head_dim_not_256", f"the model's head dim is {model.head_dim}", "warn")
    dp = settings.number("dp-size", 1) if settings.given("enable-dp-attention") else 1
    ranks = max(settings.number("tp-size", 1) // max(dp, 1), 1)
    heads = rank_heads(model.q_heads, model.kv_heads or model.q_heads, ranks)
    if heads is None:
        yield Finding(
            "heads_do_not_divide",
            "refuse",
            f"{model.q_heads} q and {model.kv_heads} kv heads do not divide over {ranks} ranks; SGLang would refuse",
            "choose a --tp that divides the heads",
        )
        return
    q_heads, kv_heads = heads
    if q_heads % kv_heads or q_heads // kv_heads not in GQA_RATIOS:
        yield _stops("gqa_ratio", f"{q_heads} q heads / {kv_heads} kv heads on a rank", "warn")
    limit = ADDRESS_LIMIT // (q_heads * BYTES_PER_HEAD_ROW)
    chunk = _chunk(settings)
    batch = chunk if chunk > 0 else settings.number("max-prefill-tokens", _DEFAULT_MAX_PREFILL)
    name = "chunked-prefill-size" if chunk > 0 else "max-prefill-tokens"
    if batch >= limit:
        yield _stops(
            "batch_too_large", f"--{name} {batch} with {q_heads} q heads on a rank; the kernel takes less than {limit}"
        )
    longest = settings.number("context-length", model.context_length or 0)
    if chunk <= 0 and longest >= limit:
        yield _stops(
            "batch_too_large", f"a prompt of {longest} tokens runs alone; the kernel takes less than {limit}", "warn"
        )
