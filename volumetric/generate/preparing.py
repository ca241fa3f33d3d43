"""Kernels that are compiled before a call needs them."""

from __future__ import annotations

from volumetric.runtime.device import Executable
from volumetric.runtime.preparable import Preparable


def prepare(executable: Executable, *, draws: bool) -> None:
    """Compile the kernels of calls of any number of rows, and of sampling if tokens are to be drawn.

    Devices that compile nothing by call, or have no list of what they compile, do nothing.
    """
    if not isinstance(executable, Preparable):
        return
    executable.prepare()
    if draws:
        from volumetric.runtime.cpu.sampling import SAMPLING

        SAMPLING.prepare()
