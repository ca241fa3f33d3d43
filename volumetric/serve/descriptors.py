"""Descriptors: how many connections a process can hold open, which its limit of open files bounds."""

from __future__ import annotations

import logging
from typing import Final

logger: logging.Logger = logging.getLogger(__name__)

_OTHERS: Final = 256
"""File descriptors reserved for models, devices, pipes and libraries."""


def allowed_connections(connections: int) -> int:
    """Raise the limit of open files as far as needed and possible; return how many of the connections it allows."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
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
        logger.warning(
            "at most %d connections: the limit of open files of this process is %d (ulimit -n)", possible, files
        )
    return min(possible, connections)
