"""The cluster's lock: one holder, taken over when it expires or is broken by name, and hosts that obey the newest."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from fastfill.errors import FastfillError, NotReadyError
from fastfill.fleet import lease
from fastfill.fleet.lease import Lease


def held(now: float = 100.0) -> Lease:
    return lease.acquire(Lease(), "r1", "ann@desk", now)[0]


def test_a_free_lock_is_taken_and_kept_by_renewing() -> None:
    taken, how = lease.acquire(Lease(), "r1", "ann@desk", 100.0)
    assert (how, taken.epoch, taken.expires) == ("free", 1, 160.0)
    assert lease.renew(taken, "r1", 115.0).expires == 175.0
    assert lease.acquire(taken, "r1", "ann@desk", 120.0)[1] == "ours"


def test_the_second_is_refused_and_told_who_holds_it() -> None:
    with pytest.raises(NotReadyError) as refused:
        lease.acquire(held(), "r2", "bob@desk", 130.0)
    assert "ann@desk" in refused.value.what and "r1" in refused.value.what and "30 s" in refused.value.what
    assert "fleet_break_lock=ann@desk" in refused.value.next_step


@pytest.mark.parametrize(("now", "breaks", "how"), [(160.0, "", "expired"), (130.0, "ann@desk", "broken")])
def test_it_is_taken_over(now: float, breaks: str, how: str) -> None:
    taken, got = lease.acquire(held(), "r2", "bob@desk", now, breaks=breaks)
    assert (got, taken.owner, taken.epoch) == (how, "bob@desk", 2)


def test_only_the_one_who_is_named_is_broken() -> None:
    with pytest.raises(NotReadyError, match="'eve@desk' does not hold it"):
        lease.acquire(held(), "r2", "bob@desk", 130.0, breaks="eve@desk")


def test_a_lost_lock_cannot_be_renewed_and_giving_it_back_takes_nobody_elses() -> None:
    taken = lease.acquire(held(), "r2", "bob@desk", 200.0)[0]
    with pytest.raises(FastfillError, match="bob@desk has it"):
        lease.renew(taken, "r1", 201.0)
    assert lease.release(taken, "r1") == taken
    assert lease.release(taken, "r2") == Lease(epoch=2)


def test_a_host_refuses_whoever_lost_the_lock() -> None:
    seen = lease.fence({}, "r1", 1)
    assert lease.fence(seen, "r1", 1) == seen
    newer = lease.fence(seen, "r2", 2)
    with pytest.raises(FastfillError, match="obeys rollout r2"):
        lease.fence(newer, "r1", 1)
    with pytest.raises(FastfillError, match="obeys rollout r2"):
        lease.fence(newer, "r3", 2)


def test_of_many_at_once_one_gets_it(tmp_path: Path) -> None:
    got: list[str] = []

    def ask(name: str) -> None:
        try:
            lease.change(tmp_path, lambda old: lease.acquire(old, name, name, 100.0)[0])
            got.append(name)
        except NotReadyError:
            return

    threads = [threading.Thread(target=ask, args=(f"r{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 1
    assert lease.change(tmp_path, lambda old: old).rollout == got[0]
