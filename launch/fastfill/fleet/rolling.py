"""One server's whole turn on its own host: that a controller dies in between leaves no server outside the routers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from fastfill.fleet import drain
from fastfill.fleet.engine import Engine
from fastfill.fleet.places import Instance
from fastfill.fleet.switch import Outcome, Switch


def roll(
    switch: Switch, release: str, drain_s: float, *, keep: bool = True, heed: Callable[[], None] = lambda: None
) -> Outcome:
    """Drain a server, switch it, and let whatever serves then serve again.

    Args:
        switch: The server's.
        release: On this host already.
        drain_s: After so long a server that is still busy is left alone.
        keep: As :meth:`Switch.change` takes it.
        heed: Raises where the run has lost the lock; asked again after the drain, which takes its time.

    Returns:
        The switch's outcome; ``skipped`` where the server stayed busy, ``failed`` where it serves but a router does not
        send it requests.
    """
    one = switch.instance
    heed()
    one.manifest(release)
    with one.alone():
        before = one.link("proven")
        # Read by recover(), where this process and the host die before the end.
        one.note_away(before is not None)
        try:
            # Its last turn may have been broken off after it was taken out; what is not proven gets no requests.
            idle = drain.drain(one, drain_s, back=before is not None)
            if not idle["ok"]:
                return Outcome(one.name, release, "skipped", idle["why"], changed=False, before=before, serves=before)
            heed()
            done = switch.change(release, keep=keep)
            done.drain_s = idle["waited_s"]
            return _entered(one, done)
        except BaseException:
            if one.link("proven") is not None:
                drain.enter(one)
            raise
        finally:
            one.note_away(False)


def mend(switch: Switch, release: str, heed: Callable[[], None] = lambda: None) -> Outcome:
    """Hand a server that serves back to systemd and to the routers: no reload, so no drain."""
    heed()
    with switch.instance.alone():
        return _entered(switch.instance, switch.change(release))


def _entered(one: Instance, done: Outcome) -> Outcome:
    if done.serves is None:
        return done
    begun = time.monotonic()
    entered = drain.enter(one)
    done.enter_s = round(time.monotonic() - begun, 1)
    done.changed = done.changed or entered["changed"]
    if not entered["ok"]:
        done.outcome, done.why = "failed", "; ".join(filter(None, [done.why, entered["why"]]))
    return done


def recover(engine: Engine, one: Instance) -> bool:
    """Put a server back in service whose turn was broken off; returns whether it was one."""
    if not one.is_away() or one.switching():
        return False
    with one.alone():
        # A turn that ended in the meantime may have taken it out for good.
        if not one.is_away():
            return False
        one.point("candidate", None)
        if one.link("proven") is not None:
            if not engine.active(one):
                engine.unit(one, "reset-failed")
                # In place of a candidate that nobody has proven; where even that fails, nothing serves.
                if engine.unit(one, "start").code != 0:
                    engine.stop(one)
            one.serve(True)
        one.note_away(False)
    return True


def retire(engine: Engine, one: Instance) -> dict[str, Any]:
    """Take a server out and stop it; no release is proven on it any more, so that a later run proves it anew."""
    with one.alone():
        # It is stopped, busy or not: back in the routers it would be sent requests until then.
        out = drain.drain(one, 60.0, back=False)
        engine.unit(one, "stop")
        engine.stop(one)
        one.point("proven", None)
        one.point("candidate", None)
        one.serve(False)
    return {"changed": True, "idle": out["ok"]}
