"""The servers of the accuracy gate: two that are up, or two that are started here, one after the other."""

from __future__ import annotations

from collections.abc import Callable

from fastfill.benchmark.accuracy import Place
from fastfill.benchmark.arms import Arm
from fastfill.benchmark.connection import Connection
from fastfill.benchmark.journal import Journal
from fastfill.benchmark.restart import OwnPathTarget, RestartTarget
from fastfill.benchmark.target import PathTarget, Target
from fastfill.errors import UsageError
from fastfill.serving.profile import load

FP8, BF16 = "long-context", "bf16-kv"


class Servers:
    """Where each arm is served; :meth:`close` leaves everything as it was found.

    Args:
        url: A server with fp8 KV that is up.
        bf16_url: One with bf16 KV.
        start: Without either: starts ``fastfill serve`` with a profile; None where nothing may be started.
        who: For the kill switch's audit log.
        journal: See :class:`PathTarget`.
    """

    def __init__(
        self,
        url: Connection | None,
        bf16: Connection | None,
        start: RestartTarget | None,
        who: str,
        journal: Journal | None = None,
    ) -> None:
        self._start = start
        self._bf16 = bf16
        fp8 = url or (start.connection if start else None)
        if fp8 is None:
            raise UsageError(
                "no server is named", where="--url", next_step="give --url, or --model to start servers here"
            )
        self._fp8 = fp8
        self._fast = Arm("A", load(FP8), "on", True)
        self._fallback = Arm("A", load(FP8), "off", False)
        self._reference = Arm("B", load(BF16), "on", False)
        switch = PathTarget(fp8, who, journal)
        self._target: Target = switch
        self._own = None if start is None else OwnPathTarget(start, self._fast, switch)
        if self._own is not None:
            self._target = self._own

    def places(self) -> list[Place]:
        """The arms, in an order that starts each server once."""
        has_bf16 = self._bf16 is not None or self._start is not None
        return [
            Place("fast", self._fast, self._turned(self._fast)),
            Place("fallback", self._fallback, self._turned(self._fallback)),
            Place("bf16", self._reference, self._take_bf16 if has_bf16 else None),
        ]

    def close(self) -> None:
        """Put the switch back, end what was started."""
        self._target.close()

    def _turned(self, arm: Arm) -> Callable[[], Connection]:
        def take() -> Connection:
            self._target.take(arm)
            return self._fp8

        return take

    def _take_bf16(self) -> Connection:
        if self._bf16 is not None:
            return self._bf16
        assert self._start is not None and self._own is not None
        self._own.put_back()
        self._start.take(self._reference)
        return self._start.connection
