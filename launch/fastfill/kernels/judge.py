"""Judges what was found: which revision, whether it is right, and what keeps aiter from reaching it. Pure."""

from __future__ import annotations

from typing import Literal, NamedTuple

from fastfill.kernels.installation import Installation
from fastfill.kernels.objects import KernelObject
from fastfill.kernels.revisions import BY_ID, CAUSAL_GROUP, SYMBOLS, is_broken_hash, of_hash

ARCH = "gfx950"
Status = Literal["pass", "warn", "fail"]
INSTALL = "install aiter main at or after 5c0fece96d (the stack file pins one)"
PREBUILD = "none needed; to spare the first request: build aiter with PREBUILD_KERNELS=1 GPU_ARCHS=gfx950"
REBUILD = "delete aiter/jit/module_fmha_v3_varlen_fwd.so and aiter/jit/build, or start once with AITER_REBUILD=1"


class Finding(NamedTuple):
    """One check of ``kernel identify``; ``fix`` is "" where there is nothing to do."""

    id: str
    status: Status
    value: str
    fix: str = ""


class Identity(NamedTuple):
    """The judgement.

    Attributes:
        revision: A, B, C or D, or ``unknown`` (newer is not bad).
        broken: Whether a file that is there computes wrong answers.
        missing: Whether the kernel that a prefill takes is absent or cannot be reached.
        findings: Each check, in the order in which a call meets them.
    """

    revision: str
    broken: bool
    missing: bool
    findings: tuple[Finding, ...]


def judge(found: Installation) -> Identity:
    """Judge an installation, or a single object by itself."""
    broken = any(is_broken_hash(item.sha256) for item in found.objects)
    revision = _revision(found.objects)
    findings = _objects(found)
    if found.objects:
        findings.append(_revision_finding(revision, found.objects))
    if found.kind != "object":
        findings += [_table(found), _gate(found), _module(found)]
    missing = any(finding.status == "fail" and finding.id != "revision" for finding in findings)
    return Identity(revision, broken, missing, tuple(findings))


def _revision(objects: tuple[KernelObject, ...]) -> str:
    """The revision of the object a prefill takes; without it, the only one that all objects could be of."""
    for item in objects:
        if item.name == CAUSAL_GROUP:
            return (*of_hash(item.sha256), "unknown")[0]
    candidates = set(BY_ID)
    for item in objects:
        candidates &= set(of_hash(item.sha256))
    return candidates.pop() if len(candidates) == 1 else "unknown"


def _objects(found: Installation) -> list[Finding]:
    if found.kind != "object" and all(item.name != CAUSAL_GROUP for item in found.objects):
        return [Finding("object", "fail", f"{CAUSAL_GROUP} is not there", INSTALL)]
    return [_object(item) for item in found.objects]


def _object(item: KernelObject) -> Finding:
    known = SYMBOLS.get(item.name)
    if item.problem:
        return Finding("object", "fail", f"{item.name}: {item.problem}", INSTALL)
    if item.arch != ARCH:
        return Finding("object", "fail", f"{item.name} is for {item.arch}, not {ARCH}", INSTALL)
    if (known is not None and item.symbol != known) or (known is None and item.symbol not in SYMBOLS.values()):
        return Finding("object", "fail", f"{item.name} holds {item.symbol or 'no kernel'}", INSTALL)
    return Finding("object", "pass", f"{item.name}: {item.arch}, {item.symbol}")


def _revision_finding(revision: str, objects: tuple[KernelObject, ...]) -> Finding:
    for item in objects:
        if is_broken_hash(item.sha256):
            return Finding("revision", "fail", f"{item.name} is of revision B: {BY_ID['B'].note}", INSTALL)
    unread = [f"{item.name} cannot be read" for item in objects if item.problem]
    if unread:
        return Finding("revision", "fail", f"cannot be told: {', '.join(unread)}", INSTALL)
    if revision == "unknown":
        shared = sorted({name for item in objects for name in of_hash(item.sha256)})
        if shared and len(objects) == 1:
            return Finding("revision", "pass", f"{' or '.join(shared)}: this file is the same in both")
        return Finding(
            "revision", "pass", "not one of the four known: probably newer; run fastfill selfcheck on the GPU"
        )
    strangers = sorted(item.name for item in objects if revision not in of_hash(item.sha256))
    if strangers:
        return Finding("revision", "warn", f"{revision}, but not {', '.join(strangers)}: mixed revisions", INSTALL)
    return Finding("revision", "pass", f"{revision} ({BY_ID[revision].commit}): {BY_ID[revision].note}")


def _table(found: Installation) -> Finding:
    if found.row is None:
        why = found.table_problem or "fmha_fwd.csv has no row for fp8, head dim 256, causal, packed"
        return Finding("table_row", "fail", why, INSTALL)
    present = {item.name: item for item in found.objects}
    item = present.get(found.row.file)
    if item is None or (item.symbol and item.symbol != found.row.symbol):
        held = f"the object holds {item.symbol}" if item else "which is not there"
        return Finding("table_row", "fail", f"the row names {found.row.symbol} in {found.row.file}: {held}", INSTALL)
    return Finding("table_row", "pass", f"{found.row.file}: {found.row.symbol}")


def _gate(found: Installation) -> Finding:
    if found.gate is None:
        return Finding("python_gate", "warn", f"cannot be read: {found.gate_problem}", "check that PATH is complete")
    if not found.gate:
        return Finding(
            "python_gate", "fail", "the varlen forward in aiter/ops/mha.py has no hdim_q == 256 branch", INSTALL
        )
    return Finding("python_gate", "pass", "the varlen forward in aiter/ops/mha.py lets head dim 256 through")


def _module(found: Installation) -> Finding:
    module = found.module
    if module is None:
        return Finding(
            "prebuilt_module", "warn", "no module_fmha_v3_varlen_fwd.so: it is compiled when first used", PREBUILD
        )
    if module.problem:
        return Finding("prebuilt_module", "fail", f"module_fmha_v3_varlen_fwd.so is {module.problem}", REBUILD)
    if not module.knows_kernel:
        value = f"module_fmha_v3_varlen_fwd.so does not know {CAUSAL_GROUP}: built from an older table"
        return Finding("prebuilt_module", "fail", value, REBUILD)
    if module.archs and ARCH not in module.archs:
        value = f"module_fmha_v3_varlen_fwd.so is for {', '.join(module.archs)}, not {ARCH}"
        return Finding("prebuilt_module", "fail", value, REBUILD)
    archs = ", ".join(module.archs) or "no GPU code that can be told apart"
    return Finding("prebuilt_module", "pass", f"module_fmha_v3_varlen_fwd.so knows the kernel ({archs})")
