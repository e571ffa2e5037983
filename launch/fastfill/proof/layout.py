"""Which ranks a server has by its own settings, and which of them never reported."""

from __future__ import annotations

from fastfill.proof.evidence import Evidence
from fastfill.proof.wire import Rank, ServerFacts


def ranks(server: ServerFacts) -> tuple[Rank, ...]:
    """Every rank, as the witness names them: with DP attention the tensor-parallel ranks are split among the others."""
    if server.enable_dp_attention and server.dp_size > 1:
        each = max(1, server.tp_size // server.dp_size)
        inner = [(tp // each, tp) for tp in range(server.tp_size)]
    else:
        inner = [(dp, tp) for dp in range(max(1, server.dp_size)) for tp in range(server.tp_size)]
    return tuple(Rank(pp=pp, dp=dp, tp=tp) for pp in range(max(1, server.pp_size)) for dp, tp in inner)


def unseen(evidence: Evidence) -> tuple[Rank, ...]:
    """Ranks that never reported: on other nodes, or without a witness. They are not known to fire."""
    status = evidence.status_after or evidence.status_before
    reported = {one.rank for one in status.ranks} if status else set()
    return tuple(rank for rank in ranks(evidence.server) if rank not in reported)
