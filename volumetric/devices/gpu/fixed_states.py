"""Fixed states of all sequences of an executable: for each line of the page tables the values after the last rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volumetric.base.errors import DeviceError
from volumetric.devices.gpu.gpu_context import GpuContext
from volumetric.devices.gpu.kernels import elementwise
from volumetric.devices.gpu.kernels.dispatch import CallRows, ceil_div
from volumetric.devices.gpu.kernels.recurrence import RING
from volumetric.layers import StateSpec


def fixed_name(key: str) -> str:
    """Name of a state's buffer in recordings."""
    return f"values of {key}"


class FixedStates:
    """Buffers ``[lines, RING, size padded]``, one for each state; kernels treat the value of position 0 as zeros.

    Parameters
    ----------
    context : the open GPU
    specs : key → the state
    lines : sequences

    Attributes
    ----------
    buffers : key → buffer

    Raises
    ------
    DeviceError : out of memory, or more than the GPU binds at once
    """

    def __init__(self, context: GpuContext, specs: Mapping[str, StateSpec], lines: int) -> None:
        self._context = context
        self._specs = specs
        self._moves: Any = None
        self.buffers: dict[str, Any] = self._allocate(lines)

    @property
    def line_bytes(self) -> int:
        """Bytes of a line."""
        return sum(RING * self._bytes(key) for key in self.buffers)

    def grow(self, lines: int) -> dict[str, Any]:
        """Return larger buffers, for `take`."""
        return self._allocate(lines)

    def move_into(self, larger: Mapping[str, Any]) -> None:
        """Move into larger buffers."""
        self._context.copy_whole([(self.buffers[key], buffer) for key, buffer in larger.items()])
        for buffer in self.buffers.values():
            self._context.free(buffer)
        self.buffers = dict(larger)

    def copy(self, line: int, other: int) -> None:
        """Copy the values of a line to another line."""
        if not self.buffers:
            return
        if self._moves is None:
            self._moves = self._context.buffer(16, "moves of states")
        self._context.write(self._moves, np.array([line, other], np.uint32))
        calls = [
            self._context.bind(
                elementwise.copy_pages(RING * self._bytes(key) // 16), {"pages": buffer, "moves": self._moves}
            )
            for key, buffer in self.buffers.items()
        ]
        self._context.run(calls, CallRows(1))

    def read(self, key: str, line: int, position: int) -> NDArray[Any]:
        """Value after `position` rows, at least one."""
        spec, size = self._specs[key], self._bytes(key)
        data = self._context.read(self.buffers[key], size, (RING * line + position % RING) * size)
        return data.view(spec.dtype)[: spec.size].reshape(spec.shape).copy()

    def write(self, key: str, line: int, position: int, value: NDArray[Any]) -> None:
        """Set the value after `position` rows."""
        size = self._bytes(key)
        padded = np.zeros(size // 4, self._specs[key].dtype)
        padded[: value.size] = value.reshape(-1)
        self._context.write(self.buffers[key], padded, (RING * line + position % RING) * size)

    def close(self) -> None:
        """Free every buffer."""
        for buffer in (*self.buffers.values(), *([] if self._moves is None else [self._moves])):
            self._context.free(buffer)
        self.buffers = {}
        self._moves = None

    def _bytes(self, key: str) -> int:
        return 16 * ceil_div(self._specs[key].size, 4)

    def _allocate(self, lines: int) -> dict[str, Any]:
        buffers: dict[str, Any] = {}
        most = self._context.caps.max_binding
        try:
            for key in self._specs:
                size = lines * RING * self._bytes(key)
                if size > most:
                    raise DeviceError(
                        f"{lines} sequences need {size} bytes for {key}; this GPU binds at most {most}",
                        hint="close finished sequences",
                    )
                buffers[key] = self._context.buffer(size, f"values of {key}")
        except DeviceError:
            for buffer in buffers.values():
                self._context.free(buffer)
            raise
        return buffers
