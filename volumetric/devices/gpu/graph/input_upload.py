"""Inputs of a program: their buffers and their upload; small inputs share one buffer.

Runs never write inputs, so a shared buffer makes no dispatch wait for another.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from volumetric.base._typing import Array
from volumetric.devices.gpu.buffer_names import binding_error
from volumetric.devices.gpu.gpu_context import BufferSlice, GpuContext
from volumetric.devices.gpu.owned_buffers import OwnedBuffers
from volumetric.graph.ops import Tensor

_TOGETHER = 1 << 20
"""Bytes of inputs that share one buffer, so that one write uploads them all; larger ones are written separately."""


class InputUpload:
    """Inputs of one program.

    Parameters
    ----------
    owned : owner of the buffers

    Attributes
    ----------
    parts : binding of each input in dispatches

    Raises
    ------
    DeviceError : out of memory, or an input exceeds a binding
    """

    def __init__(self, context: GpuContext, owned: OwnedBuffers, inputs: Sequence[Tensor]) -> None:
        self._context = context
        step = context.alignment
        starts = [0, *np.cumsum([-(-max(4 * tensor.size, 16) // step) * step for tensor in inputs]).tolist()]
        self._bytes = starts[-1] if len(inputs) > 1 and starts[-1] <= _TOGETHER else 0
        if self._bytes:
            whole = owned[owned.make("inputs", self._bytes)]
            self._host = np.zeros(self._bytes, np.uint8)
            sizes = [max(4 * tensor.size, 16) for tensor in inputs]
            self.parts = [BufferSlice(whole, at, size) for at, size in zip(starts[:-1], sizes, strict=True)]
            return
        for tensor in inputs:
            if 4 * tensor.size > context.caps.max_binding:
                raise binding_error(tensor.name, 4 * tensor.size, context.caps.max_binding)
        buffers = [owned[owned.make(tensor.name, 4 * tensor.size)] for tensor in inputs]
        self.parts: list[BufferSlice] = [BufferSlice(buffer, 0, buffer.size) for buffer in buffers]

    def write(self, values: Sequence[Array]) -> None:
        """Upload all inputs; they are contiguous and have the types of their tensors."""
        if not self._bytes:
            for part, value in zip(self.parts, values, strict=True):
                if value.size:
                    self._context.write(part.buffer, value)
            return
        for part, value in zip(self.parts, values, strict=True):
            self._host[part.offset : part.offset + value.nbytes] = value.reshape(-1).view(np.uint8)
        self._context.write(self.parts[0].buffer, self._host)
