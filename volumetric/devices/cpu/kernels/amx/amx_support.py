"""Permission of this process to use the processor's matrix registers.

Their content is 8 KiB a thread, which Linux saves only for processes that requested it: once, before the first use, for
all threads and for forked children. A system without support, or with too small alternative signal stacks, refuses, and
products run as on a processor without AMX.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from functools import cache

from volumetric.devices.cpu.kernels.cpu_target import target

_ARCH_PRCTL = 158
_REQUEST_PERMISSION, _TILE_DATA = (
    0x1023,
    18,
)  # ARCH_REQ_XCOMP_PERM of XTILEDATA, see Linux's Documentation/arch/x86/xstate.rst


@cache
def has_matrix_registers() -> bool:
    """Whether products of many rows run on matrix registers; ``VOLUMETRIC_AMX=0`` disables it."""
    if os.environ.get("VOLUMETRIC_AMX", "1") == "0":
        return False
    machine = target()
    if machine.dot != "vnni512" or not {"amx-tile", "amx-int8"} <= machine.features:
        return False
    return sys.platform == "linux" and platform.machine() == "x86_64" and _is_permitted()


def _is_permitted() -> bool:
    """Request permission from the system."""
    syscall = ctypes.CDLL(None).syscall
    syscall.argtypes, syscall.restype = (ctypes.c_long,) * 3, ctypes.c_long
    return syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA) == 0
