"""Who may change the cluster: one lease, kept as a file on a named host. The rules are pure, the file is locked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from fastfill.errors import FastfillError, NotReadyError
from fastfill.fleet import places

SECONDS = 60.0
"""Of a lease. It is renewed every 15 s: three renewals may be lost."""


@dataclass(frozen=True, slots=True)
class Lease:
    """Attributes:
    rollout: Which run holds it, "" for none.
    owner: Who runs it, as user@host.
    epoch: Counts the holders: hosts refuse one that is older than one they have seen.
    since: When it was taken, in seconds since 1970.
    expires: When it ends unless it is renewed.
    """

    rollout: str = ""
    owner: str = ""
    epoch: int = 0
    since: float = 0.0
    expires: float = 0.0

    def held(self, now: float) -> bool:
        """Whether somebody holds it now."""
        return bool(self.rollout) and now < self.expires


def acquire(
    lease: Lease, rollout: str, owner: str, now: float, *, seconds: float = SECONDS, breaks: str = ""
) -> tuple[Lease, str]:
    """Take the lease.

    Args:
        lease: As it is.
        rollout: Which run asks.
        owner: Who runs it.
        now: Seconds since 1970, by the clock of the lease's host.
        seconds: How long it holds without being renewed.
        breaks: The owner whose lease may be broken; it must be the one who holds it.

    Returns:
        The new lease, and how it was got: ``free``, ``ours``, ``expired`` or ``broken``.

    Raises:
        NotReadyError: Another run holds it.
    """
    if lease.held(now) and lease.rollout == rollout:
        return replace(lease, expires=now + seconds), "ours"
    if lease.held(now) and breaks != lease.owner:
        asked = f"; '{breaks}' does not hold it" if breaks else ""
        raise NotReadyError(
            f"{lease.owner} is changing this cluster (rollout {lease.rollout}) and holds the lock for another "
            f"{lease.expires - now:.0f} s{asked}",
            where="the cluster's lock",
            next_step=f"wait until it ends; if that controller is dead: -e fleet_break_lock={lease.owner}",
        )
    how = "broken" if lease.held(now) else "expired" if lease.rollout else "free"
    return Lease(rollout, owner, lease.epoch + 1, now, now + seconds), how


def renew(lease: Lease, rollout: str, now: float, *, seconds: float = SECONDS) -> Lease:
    """Prolong the lease.

    Raises:
        FastfillError: Another run has it by now, or nobody.
    """
    if lease.rollout != rollout:
        raise FastfillError(
            f"the lock is no longer ours: {lease.owner or 'nobody'} has it",
            where=f"rollout {rollout}",
            next_step="run the playbook again; it goes on where this run stopped",
        )
    return replace(lease, expires=now + seconds)


def release(lease: Lease, rollout: str) -> Lease:
    """Give the lease back; another run's is left alone. The epoch stays, so that it only grows."""
    return Lease(epoch=lease.epoch) if lease.rollout == rollout else lease


def fence(seen: dict[str, object], rollout: str, epoch: int) -> dict[str, object]:
    """What a host remembers of the holders that it has heard of.

    Args:
        seen: What it remembers, ``{epoch, rollout}``; empty at first.
        rollout: The run that wants something of the host.
        epoch: Of its lease.

    Raises:
        FastfillError: A later holder was seen, or another one of the same epoch.
    """
    known, whose = int(str(seen.get("epoch", 0))), str(seen.get("rollout", ""))
    if epoch < known or (epoch == known and whose and whose != rollout):
        raise FastfillError(
            f"this host obeys rollout {whose} (epoch {known}), not {rollout} (epoch {epoch})",
            where="the host's own record of the lock",
            next_step="this run has lost the lock; run the playbook again when the other one has ended",
        )
    return {"epoch": epoch, "rollout": rollout}


def change(folder: Path, how: Callable[[Lease], Lease]) -> Lease:
    """Read the lease, change it and write it, with nobody in between."""
    file = folder / "lease.json"
    with places.held(folder / "lease.lock"):
        lease = Lease(**{key: value for key, value in places.read(file).items() if key in Lease.__dataclass_fields__})
        changed = how(lease)
        if changed != lease:
            places.write(file, asdict(changed))
    return changed
