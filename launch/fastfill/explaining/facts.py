"""Everything that the decisions are made on, gathered; and the results that they give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from fastfill.explaining.aiter import Aiter
from fastfill.explaining.launch import Launch
from fastfill.explaining.releases import Release
from fastfill.explaining.scales import Scales
from fastfill.explaining.scheduler import Schedule
from fastfill.model_config import Layers, ModelShape
from sglang_fastfill.state import truthy

Status = Literal["pass", "fail", "per_request", "unknown"]
Effect = Literal["", "stops", "crashes", "wrong", "refused"]


@dataclass(frozen=True, slots=True)
class Facts:
    """A deployment, as far as it is known before it runs.

    Attributes:
        release: What SGLang does.
        model: The model.
        layers: The layers that are judged: those that come nearest to the path.
        launch: SGLang's flags.
        schedule: What the scheduler makes of them.
        aiter: The installed kernel.
        scales: The checkpoint's k and v scales.
        env: The server's environment, as far as it was given; None for a live server, which does not tell.
        gpu: The GPU's ISA.
        live: What a live server's own gate says: condition id to status and value.
        operator_off: Whether the kill switch is thrown; None if unknown.
    """

    release: Release
    model: ModelShape
    layers: Layers
    launch: Launch
    schedule: Schedule
    aiter: Aiter
    scales: Scales
    env: Mapping[str, str] | None
    gpu: str = "gfx950"
    live: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    operator_off: bool | None = None

    @property
    def patched(self) -> bool:
        """Whether our gate decides, which tests every condition."""
        return self.release.path == "patched"

    @property
    def builtin(self) -> bool:
        """Whether SGLang's own path is there, behind fewer tests."""
        return self.release.path == "builtin"

    @property
    def paged(self) -> bool:
        """Whether prefills read the paged cache in place (0.5.23 aiter_backend.py:2591-2602).

        SGLang does so unless the flag is 0; our gate only if it is 1 in so many words.
        """
        env = self.env or {}
        return (
            self.release.paged
            and self.launch.page_size == 64
            and truthy(env.get("SGLANG_AITER_PAGED_PREFILL_ASM", "1" if self.builtin else "0"))
            and not truthy(env.get("SGLANG_USE_AITER_UNIFIED_ATTN"))
            and not self.model.count("sliding")
        )


@dataclass(frozen=True, slots=True)
class Result:
    """One condition, decided.

    Attributes:
        id: The condition's name in the one vocabulary.
        status: ``pass``: it does not stop the path. ``per_request``: it does for some requests.
        detail: The value that decided it.
        source: Where the rule is written.
        effect: What a ``fail`` or ``per_request`` does: ``stops`` the path, ``crashes`` the prefill, gives ``wrong``
            answers, or makes SGLang refuse to start (``refused``).
        fix: What to do about it; "" takes the vocabulary's.
    """

    id: str
    status: Status
    detail: str
    source: str
    effect: Effect = ""
    fix: str = ""


def attention_ranks(launch: Launch) -> int:
    """The ranks over which one sequence's heads are split."""
    return max(launch.tp // (launch.dp if launch.dp_attention else 1) // max(launch.cp, 1), 1)


def rank_heads(q_heads: int, kv_heads: int, ranks: int) -> tuple[int, int] | None:
    """q and kv heads on one rank, kv heads replicated when there are fewer than ranks; None if they do not divide."""
    if q_heads % ranks or (kv_heads % ranks if kv_heads >= ranks else ranks % kv_heads):
        return None
    return q_heads // ranks, max(kv_heads // ranks, 1)
