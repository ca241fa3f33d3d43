"""Operations made ready one after the other, with word of how far that is.

Numba compiles each operation once on a machine, a second or more at a time; afterwards they come from the user's cache
within milliseconds. Whoever waits at the first start wants to know for what, and how long.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable

from volumetric.kernels.cpu.jit import cache_directory

_log = logging.getLogger(__name__)

COMPILED = 0.2
"""Seconds that no operation takes to come from the cache: loading takes a hundredth of it."""

Key = tuple[str, tuple[str | int, ...]]
"""Name of an operation, and the constants that it is specialised to."""


def make_ready(wanted: Iterable[Key], operation: Callable[..., int]) -> None:
    """Compile the operations of `wanted`, or load them from the cache.

    Each one that was compiled is told to this module's logger, with ``record.progress = (done, all)``; and at the end
    how long it took, and whether it will be so again, with ``record.progress = None``.

    Parameters
    ----------
    wanted : in any order, any number of times
    operation : returns the address of an operation, given its name and constants
    """
    keys = tuple(dict.fromkeys(wanted))
    began, compiled = time.perf_counter(), 0
    for done, (name, constants) in enumerate(keys, 1):
        before = time.perf_counter()
        operation(name, *constants)
        if time.perf_counter() - before > COMPILED:
            compiled += 1
            _log.info(
                "compiling kernels, once on this machine: %d of %d",
                done,
                len(keys),
                extra={"progress": (done, len(keys))},
            )
    if compiled:
        again = "which are kept for the next start" if cache_directory() else "and again at the next start: no cache"
        what, seconds = "1 kernel" if compiled == 1 else f"{compiled} kernels", time.perf_counter() - began
        _log.info("compiled %s in %.1f s, %s", what, seconds, again, extra={"progress": None})
