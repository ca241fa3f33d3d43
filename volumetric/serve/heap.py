"""The heap of the process: what glibc keeps of freed memory is given back to the system, and cycles are found.

Requests of all sizes come and go; without it a server's resident memory grows for hours over what it holds.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

_ARENA_MAX: Final = -8
"""M_ARENA_MAX of glibc's malloc.h."""
ARENAS: Final = 2
_BETWEEN: Final = 1_000
"""Objects between two searches for cycles of them: a search takes a tenth of a millisecond then."""


@contextmanager
def searched() -> Iterator[None]:
    """Let the search for cycles of objects be behind the context as it was before it, whatever `settle` does there."""
    thresholds, frozen = gc.get_threshold(), gc.get_freeze_count()
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        if not frozen:  # else whoever runs the server has left out what is there, too
            gc.unfreeze()


def settle() -> None:
    """Look for cycles often, and not through what there is now, which stays: models, kernels, modules.

    No other thread runs Python while a search lasts. Through all that a server has it takes a tenth of a second, and
    after 100,000 new objects, which is how rarely commands look while they start, as much.
    """
    gc.unfreeze()  # of a model that has been closed since nothing should stay
    gc.collect()
    gc.freeze()
    gc.set_threshold(_BETWEEN, *gc.get_threshold()[1:])


def bound() -> None:
    """Let all threads have their memory from two arenas; nothing where the C library is not glibc.

    glibc makes one for each thread, eight for each core at most, and what lives long in one holds all that was freed
    around it: 8,000 requests of a fuzzer left 113 MiB so, and 66 with two.
    """
    library = _glibc()
    if library is not None:
        library.mallopt(_ARENA_MAX, ARENAS)


def trim() -> None:
    """Give free memory back; it takes one or two milliseconds. Nothing where the C library is not glibc."""
    library = _glibc()
    if library is not None:
        library.malloc_trim(0)


@cache
def _glibc() -> Any:
    try:
        library = ctypes.CDLL(None)
        return library if library.malloc_trim and library.mallopt else None
    except (AttributeError, OSError, TypeError):  # musl, macOS; Windows has no library None
        return None
