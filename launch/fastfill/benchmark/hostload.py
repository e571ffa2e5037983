"""How busy the client's host is, written down beside every run."""

from __future__ import annotations

import os


def host_load() -> dict[str, float]:
    """How busy this host is: load averages, and the share of CPU time that a hypervisor took since boot."""
    import psutil

    one, five, _ = os.getloadavg()
    times = psutil.cpu_times()
    return {"load1": one, "load5": five, "cpus": float(os.cpu_count() or 1), "steal": getattr(times, "steal", 0.0)}
