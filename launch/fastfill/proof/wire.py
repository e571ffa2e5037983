"""What a server with our plugin answers: typed, frozen, and the same on the wire and in a recorded proof."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Wire(BaseModel):
    """A frozen document; keys that we do not know are left alone, so that servers may add some."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


class Rank(Wire):
    """Which scheduler process: pipeline stage, data-parallel and tensor-parallel rank."""

    pp: int = 0
    dp: int = 0
    tp: int = 0

    def __str__(self) -> str:
        return f"pp{self.pp} dp{self.dp} tp{self.tp}"

    def key(self) -> tuple[int, int, int]:
        """The order in which ranks are listed."""
        return (self.pp, self.dp, self.tp)


class KernelCalls(Wire):
    """How often one aiter function ran in one pass, and which kernel it dispatched to."""

    fn: str
    kernel: str
    head_dim: int
    count: int


class Pass(Wire):
    """One pass of one rank; in a prefill ``rids``, ``prefix`` and ``extend`` (tokens) have one entry a sequence."""

    number: int = Field(alias="pass")
    time: float = 0.0
    mode: str = ""
    draft: bool = False
    rids: tuple[str, ...]
    prefix: tuple[int, ...]
    extend: tuple[int, ...]
    calls: tuple[KernelCalls, ...] = ()
    reasons: dict[str, int] = {}

    @property
    def is_prefill(self) -> bool:
        """Whether the lengths are known for every request; a verify pass of speculative decoding has none."""
        return len(self.rids) == len(self.prefix) == len(self.extend)


class RankPasses(Wire):
    """The passes that one rank remembers; ``pid`` is 0 while it remembers none."""

    rank: Rank
    pid: int
    passes: tuple[Pass, ...] = ()


class Passes(Wire):
    """``GET /fastfill/passes``."""

    schema_name: Literal["fastfill.passes/1"] = Field(alias="schema")
    ranks: tuple[RankPasses, ...]


class PathState(Wire):
    """The kill switch: ``path`` is on unless somebody turned it off."""

    path: Literal["on", "off"] = "on"
    who: str | None = None
    why: str | None = None
    when: str | None = None


class DeploymentStatus(Wire):
    """One deployment condition on one rank, the worst over its layers."""

    status: str
    value: str = ""


class Retrieval(Wire):
    """The task that a model was trained on: half-open ranges of token ids. A key is answered by its value."""

    filler: tuple[int, int]
    keys: tuple[int, int]
    values: tuple[int, int]


class Model(Wire):
    """The model as the rank sees it.

    Attributes:
        attention_layers: The full-attention layers that this rank holds.
        retrieval: What a model that was trained to find needles says in its config; None for all others.
    """

    architectures: tuple[str, ...] = ()
    num_hidden_layers: int = 0
    attention_layers: int
    head_dim: int = 0
    num_attention_heads: int = 0
    num_key_value_heads: int = 0
    draft: bool = False
    retrieval: Retrieval | None = None


class RankStatus(Wire):
    """What one rank says of itself.

    ``kernel_files`` has the SHA-256 of each kernel file. ``since`` is when its witness began, seconds since 1970,
    before its first pass; 0 where it does not say. ``aiter_log_level`` is AITER_LOG_LEVEL in the rank, empty where it
    is unset, None where it does not say.
    """

    rank: Rank
    pid: int
    sglang: str = ""
    patched: bool = False
    build: str = ""
    flag: bool = False
    near_miss: tuple[str, ...] = ()
    rival: str = "unset"
    backend: str = ""
    hooks: dict[str, bool] = {}
    deployment: dict[str, DeploymentStatus] = {}
    model: Model
    draft_model: Model | None = None
    forced_fallback_allowed: bool = False
    context_len: int = 0
    kernel_files: dict[str, str] = {}
    since: float = 0.0
    aiter_log_level: str | None = None


class Status(Wire):
    """``GET /fastfill/status``. A rank is listed from its first forward pass on."""

    schema_name: Literal["fastfill.status/1"] = Field(alias="schema")
    version: str = ""
    path: PathState = PathState()
    ranks: tuple[RankStatus, ...] = ()


class ServerFacts(Wire):
    """The part of SGLang's ``/server_info`` that a proof rests on; its keys and paths to secrets are left out."""

    version: str
    model_path: str = ""
    tp_size: int
    pp_size: int = 1
    dp_size: int = 1
    nnodes: int = 1
    enable_dp_attention: bool = False
    disaggregation_mode: str = "null"
    chunked_prefill_size: int | None = None
    max_req_input_len: int | None = None
    kv_cache_dtype: str = ""
    page_size: int | None = None
    random_seed: int | None = None
    disable_radix_cache: bool = False
