"""Memory: the peak of this process and what is free, from what the system counts itself."""

from __future__ import annotations

import sys
from pathlib import Path


def peak_resident_bytes() -> int | None:
    """Return the most memory that this process held at once, or None where the system does not say.

    Linux is asked through ``/proc``: its ``getrusage`` also counts the parent from before ``exec``.
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
        lines = status.read_text().splitlines()
    except OSError:
        return None
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    peak = fields.get("VmHWM")
    return None if peak is None else int(peak.split()[0]) * 1024


def available_bytes() -> int | None:
    """Return the memory that is free for use, or None where the system does not say."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    kib = next((line.split()[1] for line in lines if line.startswith("MemAvailable:")), None)
    return None if kib is None else int(kib) * 1024
