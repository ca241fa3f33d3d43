"""Descriptors: how many connections a process can hold open, which is not more than the system lets it have files."""

from __future__ import annotations

import logging
from typing import Final

logger = logging.getLogger(__name__)

_OTHERS: Final = 256
"""Descriptors of models, devices, pipes and libraries."""


def admitted(connections: int) -> int:
    """Return how many connections of those wished for are possible, once the process may have as many files."""
    try:
        import resource
    except ImportError:  # Windows has no such bound
        return connections
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    bounds = [bound for bound in (soft, hard) if bound != resource.RLIM_INFINITY]
    if len(bounds) < 2 or soft >= connections + _OTHERS:
        return connections
    files = min(connections + _OTHERS, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    except (ValueError, OSError):
        files = soft
    possible = max(1, files - _OTHERS)
    if possible < connections:
        logger.warning("%d connections at most: the system gives this process %d files (ulimit -n)", possible, files)
    return min(possible, connections)
