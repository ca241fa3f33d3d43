"""Buffers behind the tensors of a graph: views share them, and scratch tensors take over those that are done with.

Buffers stay separate, never slices of one arena: wgpu tracks hazards by whole buffer. Of the free ones that fit, the
one free for longest is taken, so that a new writer seldom waits for a recent reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from volumetric._typing import Array
from volumetric.errors import DeviceError, ShapeError, SpecError
from volumetric.runtime.gpu.context import GpuContext, Slice
from volumetric.runtime.gpu.graph.store import GpuStore
from volumetric.runtime.graph.liveness import last_use, roots
from volumetric.runtime.graph.ops import Graph, Tensor

_TOGETHER = 1 << 20
"""Bytes of inputs that share one buffer, so that one write brings them all; larger ones are written where they are."""
_ROOMY = 1.25
"""How much larger than needed a buffer may be that is taken over."""


class Pool:
    """Scratch buffers of one program."""

    def __init__(self, context: GpuContext) -> None:
        self._context = context
        self._free: list[Any] = []
        self.owned: list[Any] = []

    def take(self, nbytes: int, label: str) -> Any:
        """Return a buffer of at least `nbytes`."""
        size = max(-(-nbytes // 16) * 16, 16)
        for i, buffer in enumerate(self._free):
            if size <= buffer.size <= _ROOMY * size:
                return self._free.pop(i)
        return self.new(nbytes, label)

    def new(self, nbytes: int, label: str) -> Any:
        """Return a buffer that has not been used before."""
        most = self._context.caps.max_binding
        if nbytes > most:
            raise DeviceError(
                f"a tensor of the graph ({label}) needs {nbytes >> 10} KiB; this GPU binds at most {most >> 10} KiB",
                hint="use smaller batches, or device='cpu'",
            )
        made = self._context.buffer(nbytes, label)
        self.owned.append(made)
        return made

    def give(self, buffer: Any) -> None:
        """Hand a buffer back: what is recorded after this may overwrite it."""
        self._free.append(buffer)

    def close(self) -> None:
        """Free every buffer."""
        for buffer in self.owned:
            self._context.free(buffer)
        self.owned.clear()
        self._free.clear()


class Upload:
    """Where the inputs of a program are, and how they get there: small ones side by side in one buffer.

    Nothing in a run writes to them, so sharing a buffer makes no dispatch wait for another.

    Attributes
    ----------
    parts : for each input what launches bind
    """

    def __init__(self, context: GpuContext, pool: Pool, inputs: Sequence[Tensor]) -> None:
        self._context = context
        step = context.alignment
        starts = [0, *np.cumsum([-(-max(4 * tensor.size, 16) // step) * step for tensor in inputs]).tolist()]
        self._bytes = starts[-1] if len(inputs) > 1 and starts[-1] <= _TOGETHER else 0
        if self._bytes:
            whole = pool.new(self._bytes, "inputs")
            self._host = np.zeros(self._bytes, np.uint8)
            sizes = [max(4 * tensor.size, 16) for tensor in inputs]
            self.parts = [Slice(whole, at, size) for at, size in zip(starts[:-1], sizes, strict=True)]
        else:
            buffers = [pool.new(4 * tensor.size, tensor.name) for tensor in inputs]
            self.parts = [Slice(buffer, 0, buffer.size) for buffer in buffers]

    def write(self, values: Sequence[Array]) -> None:
        """Bring all inputs to the GPU; they are contiguous and of the types of their tensors."""
        if not self._bytes:
            for part, value in zip(self.parts, values, strict=True):
                if value.size:
                    self._context.write(part.buffer, value)
            return
        for part, value in zip(self.parts, values, strict=True):
            self._host[part.offset : part.offset + value.nbytes] = value.reshape(-1).view(np.uint8)
        self._context.write(self.parts[0].buffer, self._host)


class Storage:
    """Tensor → buffer, node by node.

    Parameters
    ----------
    context, graph : the open GPU, and what runs on it
    store : where the keyed tensors are
    pool : where all others come from

    Raises
    ------
    SpecError : the store has no buffer for a key
    ShapeError : a buffer of the store has another shape or type
    DeviceError : out of memory, or a tensor exceeds a binding
    """

    def __init__(self, context: GpuContext, graph: Graph, store: GpuStore, pool: Pool) -> None:
        self._graph = graph
        self._pool = pool
        self._roots = roots(graph)
        self._last = last_use(graph)
        self._buffers: dict[int, Any] = {}
        for tensor in graph.keyed.values():
            check_held(tensor, store)
        for i, tensor in enumerate(graph.tensors):
            held = store.held(tensor.key) if tensor.key is not None else None
            if held is not None:
                self._buffers[i] = held.buffer
        for i, value in graph.constants.items():
            tensor = graph.tensors[i]
            made = self._buffers[i] = pool.new(4 * tensor.size, tensor.name)
            if value.size:
                context.write(made, value.astype(np.int32 if tensor.dtype == "int32" else np.float32))
        self.upload = Upload(context, pool, [graph.tensors[i] for i in graph.inputs])
        self._buffers |= dict(zip(graph.inputs, self.upload.parts, strict=True))
        self._given = set(self._buffers)

    def __getitem__(self, i: int) -> Any:
        """Buffer of tensor `i`."""
        return self._buffers[self._roots[i]]

    def is_wanted(self, i: int) -> bool:
        """Whether anybody reads tensor `i`, now or in a later run."""
        return self._graph.tensors[i].key is not None or self._last[self._roots[i]] >= 0

    def begin(self, at: int) -> None:
        """Find buffers for what node `at` writes."""
        for i in self._graph.nodes[at].outputs:
            if self._roots[i] == i and i not in self._buffers:
                self._buffers[i] = self._pool.take(4 * self._graph.tensors[i].size, self._graph.tensors[i].name)

    def end(self, at: int) -> None:
        """Hand back the buffers of what nobody needs after node `at`."""
        node = self._graph.nodes[at]
        for i in {self._roots[i] for i in (*node.inputs, *node.outputs)}:
            if i not in self._given and i in self._buffers and self._last[i] <= at:
                self._pool.give(self._buffers.pop(i))


def check_held(tensor: Tensor, store: GpuStore) -> None:
    """Raise unless the store has a buffer of the shape and type of a keyed tensor."""
    held = store.held(tensor.key or "")
    if held is None:
        raise SpecError(f"the store has no buffer {tensor.key!r}", hint="put its first value into the store")
    if held.shape != tensor.shape or held.dtype != np.dtype(tensor.dtype):
        raise ShapeError(
            f"{tensor.key}: the graph has {tensor.dtype} of shape {list(tensor.shape)}, "
            f"the store {held.dtype} of shape {list(held.shape)}"
        )
