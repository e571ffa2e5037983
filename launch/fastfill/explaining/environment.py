"""Traps of the environment that stop nothing by themselves: what an operator would look for in vain."""

from __future__ import annotations

from typing import Literal, NamedTuple

from fastfill.explaining.facts import Facts
from sglang_fastfill.conditions import FLAG, NEAR_MISS_FLAGS, RIVAL_FLAG
from sglang_fastfill.state import truthy


class Trap(NamedTuple):
    """One variable: what it does, and what to do about it."""

    name: str
    status: Literal["warn"]
    detail: str
    fix: str


def traps(facts: Facts) -> list[Trap]:
    """The traps that this environment holds."""
    env = facts.env or {}
    found = [
        Trap(name, "warn", f"{name} is no name of a flag; the name is {FLAG}", f"set {FLAG}=1 instead")
        for name in NEAR_MISS_FLAGS
        if name in env
    ]
    if env.get(RIVAL_FLAG):
        found.append(Trap(RIVAL_FLAG, "warn", "no released SGLang reads it", f"unset {RIVAL_FLAG}"))
    if FLAG in env and not facts.patched:
        what = "always on" if facts.builtin else "not there" if facts.release.path == "none" else "not known"
        found.append(
            Trap(FLAG, "warn", f"SGLang {facts.release.sglang} does not read it: the path is {what}", f"unset {FLAG}")
        )
    if env.get("AITER_LOG_LEVEL", "").upper() in ("WARNING", "WARN", "ERROR", "CRITICAL"):
        detail = "hides aiter's line '[aiter] LoadKernel: …', the best evidence that the kernel ran"
        found.append(Trap("AITER_LOG_LEVEL", "warn", detail, "set AITER_LOG_LEVEL=INFO"))
    if env.get("AITER_JIT_DIR"):
        detail = (
            "prebuilt modules are not seen: they are compiled again, past SGLang's 300 s watchdog at the first start"
        )
        found.append(Trap("AITER_JIT_DIR", "warn", detail, "unset AITER_JIT_DIR, or fill the folder beforehand"))
    if env.get("AITER_ASM_DIR"):
        detail = "import aiter overwrites it: the kernel files come from aiter's own folder"
        found.append(Trap("AITER_ASM_DIR", "warn", detail, "unset AITER_ASM_DIR"))
    plugins = env.get("SGLANG_PLUGINS")
    if plugins is not None and "fastfill" not in plugins.split(","):
        found.append(Trap("SGLANG_PLUGINS", "warn", "leaves fastfill's witness out", "add fastfill to SGLANG_PLUGINS"))
    if truthy(env.get("SGLANG_USE_AITER_UNIFIED_ATTN")) and facts.launch.page_size == 64 and facts.release.paged:
        detail = "unified attention excludes the paged kernel: a prefix's KV is gathered instead"
        found.append(Trap("SGLANG_USE_AITER_UNIFIED_ATTN", "warn", detail, "set it to 0, or use --page-size 16"))
    return found
