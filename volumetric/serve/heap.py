"""The heap of the process: what glibc keeps of freed memory is given back to the system.

Requests of all sizes come and go; without it a server's resident memory grows for hours over what it holds.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any


def trim() -> None:
    """Give free memory back; it takes one or two milliseconds. Nothing where the C library is not glibc."""
    found = _malloc_trim()
    if found is not None:
        found(0)


@cache
def _malloc_trim() -> Any:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # musl, macOS; Windows has no library None
        return None
