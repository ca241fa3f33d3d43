"""Memory: the peak of this process and the free memory, as counted by the system."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Final


def peak_resident_bytes() -> int | None:
    """Return the peak resident memory of this process, or None if the system does not report it.

    On Linux it is read from ``/proc``: ``getrusage`` also counts the parent before ``exec``. A value may be a tenth of
    a second old, because reading it costs as much as tens of a server's tokens.
    """
    now = time.monotonic()
    if not now - _last.read < _AT_MOST:
        _last.peak, _last.read = _peak(), now
    return _last.peak


class _LastPeak:
    """The value that was read last, and when."""

    read: float = float("-inf")
    peak: int | None = None


_last: Final = _LastPeak()
_AT_MOST: Final = 0.1
"""Seconds that a value is used."""


def _peak() -> int | None:
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
