"""A program with its input and output at fixed addresses: a call needs only one copy in and one copy out in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from volumetric.base._typing import Array
from volumetric.devices.cpu.arena import aligned_array

if TYPE_CHECKING:
    from volumetric.devices.cpu.graph.cpu_program import CpuProgram


class SingleInputCall:
    """One array in, one out, both copied; thread-safe as `CpuProgram.run`.

    The caller must have checked the shape and type of the array against the program's input.

    Parameters
    ----------
    program : of one input, no ids, and one output
    """

    __slots__ = ("_homes", "_lock", "_program", "_scratch", "_token", "_x", "_y")

    def __init__(self, program: CpuProgram) -> None:
        self._program, self._lock, self._scratch = program, program.store.lock, program.store.scratch
        self._homes = [aligned_array(tensor.shape, tensor.dtype) if lent else None for tensor, lent in program.ends]
        self._token = object()  # not self: scratch memory would keep the program alive
        self._x = self._y = aligned_array((0,), "float32")

    def __call__(self, x: Array) -> Array:
        """Run the program on `x`."""
        with self._lock:
            if self._scratch.user is not self._token:
                self._x, self._y = self._program.place_ends(self._homes)
                self._scratch.user = self._token
            self._x[...] = x
            self._program.run_parts()
            return self._y.copy()
