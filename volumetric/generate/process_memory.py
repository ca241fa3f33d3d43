"""Memory: the peak of this process and the free memory, as counted by the system."""

from __future__ import annotations

import sys
from pathlib import Path


def peak_resident_bytes() -> int | None:
    """Return the peak resident memory of this process, or None if the system does not report it.

    On Linux it is read from ``/proc``: ``getrusage`` also counts the parent before ``exec``.
    """
    if sys.platform.startswith("linux"):
        return _from_status(Path("/proc/self/status"))
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _from_status(status: Path) -> int | None:
    try:
        words = status.read_text().partition("VmHWM:")[2].split(maxsplit=1)
    except OSError:
        return None
    return int(words[0]) * 1024 if words else None


def available_bytes() -> int | None:
    """Return the available memory, or None if the system does not report it."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    kib = next((line.split()[1] for line in lines if line.startswith("MemAvailable:")), None)
    return None if kib is None else int(kib) * 1024
