"""Whether the served checkpoint's k and v scales make a release's own path wrong: what no unpatched server tells."""

from __future__ import annotations

import os
from pathlib import Path

from fastfill.errors import UsageError
from fastfill.explaining import releases, scales, source
from fastfill.proof.explain import built_in
from fastfill.proof.wire import Status


def wrong_scales(given: Path | None, model_path: str, status: Status | None) -> str:
    """A scale that is not 1, on a server whose own path casts q, k and v raw and descales by it.

    Args:
        given: The operator's folder of the model, or its config.json.
        model_path: The server's model, used when it is on this machine too.
        status: What the ranks say of their SGLang.

    Returns:
        The tensor and its value; empty where all are 1, where the release descales right, and where the checkpoint
        cannot be read here.
    """
    release = next((releases.release(rank.sglang) for rank in (status.ranks if status else ()) if built_in(rank)), None)
    if release is None or release.path != "builtin" or release.scales:
        return ""
    try:
        found = source.model(str(given or model_path), os.environ)
    except (UsageError, OSError):
        return ""
    judged = scales.read(found.folder, found.shape, release.scale_names)
    return judged.detail if judged.verdict == "other" else ""
