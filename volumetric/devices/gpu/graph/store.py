"""Persistent buffers on a GPU: parameters, optimiser state, recurrent state. They are copied back only on request."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np

from volumetric.base._typing import Array, Shape
from volumetric.base.errors import ShapeError, SpecError
from volumetric.devices.gpu.gpu_context import BufferSlice, GpuContext
from volumetric.devices.gpu.graph.packed_tensors import PackedTensors
from volumetric.graph.ops import Tensor


@dataclass(slots=True)
class StoreBuffer:
    """One tensor, its buffer or the buffer it is a part of from `start` on, and the number of stores that have it."""

    buffer: Any
    shape: Shape
    dtype: np.dtype[Any]
    stores: int = 1
    start: int = 0


PACKED: Final = "small tensors, side by side"
SMALL: Final = 256
"""Elements of a tensor up to which it is packed with others: it is read as a part of them, not in place."""
FEW: Final = 8
"""Fewer tensors than this are not packed."""


class GpuStore:
    """Named buffers on one GPU, float32 or int32.

    Attributes
    ----------
    lock : held while the buffers are used: programs of one store, and reads of it, are serialised
    """

    def __init__(self, context: GpuContext) -> None:
        self.lock: threading.RLock = threading.RLock()
        self._context = context
        self._entries: dict[str, StoreBuffer] = {}
        self._resident: dict[int, tuple[weakref.ref[Array], Any]] = {}
        self.packed: PackedTensors | None = None
        """Tensors that are parts of one buffer; programs read that buffer, see `packing`."""

    def write_together(self, values: Mapping[str, Array]) -> None:
        """Create tensors, packing small ones, once in the life of a store.

        Raises
        ------
        ShapeError : a tensor exists with another shape or type
        DeviceError : it exceeds the GPU
        """
        small = [key for key, value in values.items() if value.size <= SMALL and key not in self._entries]
        if self.packed is None and len(small) >= FEW and all(values[key].dtype == np.float32 for key in small):
            starts, end = dict[str, int](), 0
            for key in small:
                starts[key] = end
                end += values[key].size
            self.write(PACKED, np.zeros(end, np.float32))
            self.packed = PackedTensors(PACKED, end, starts)
            for key, start in starts.items():
                own = values[key]
                self._entries[key] = StoreBuffer(self._entries[PACKED].buffer, own.shape, own.dtype, 0, 4 * start)
        for key, value in values.items():
            self.write(key, value)

    def write(self, key: str, value: Array) -> None:
        """Create a buffer, or overwrite it.

        Raises
        ------
        ShapeError : the buffer exists with another shape or type
        DeviceError : it exceeds the GPU
        """
        value = np.ascontiguousarray(value, np.int32 if np.issubdtype(value.dtype, np.integer) else np.float32)
        entry = self._entries.get(key)
        if entry is None:
            buffer = self._context.buffer(value.nbytes, key)
            entry = self._entries[key] = StoreBuffer(buffer, value.shape, value.dtype)
        elif entry.shape != value.shape or entry.dtype != value.dtype:
            raise ShapeError(
                f"buffer {key!r} is {entry.dtype} {list(entry.shape)}, got {value.dtype} {list(value.shape)}"
            )
        if value.size:
            with self.lock:
                self._context.write(entry.buffer, value, entry.start)

    def get(self, key: str) -> Array:
        """Wait for the GPU and copy a buffer back. Raises `KeyError`."""
        entry = self._entries[key]
        if 0 in entry.shape:
            return np.empty(entry.shape, entry.dtype)
        with self.lock:
            raw = self._context.read(entry.buffer, entry.dtype.itemsize * prod(entry.shape), entry.start)
        return raw.view(entry.dtype).reshape(entry.shape).copy()

    def host_view(self, key: str) -> Array | None:
        """Return None: buffers are on the device."""
        return None

    def keys(self) -> Iterable[str]:
        """Names of all tensors."""
        return [key for key in self._entries if key != PACKED]

    def share(self, keys: Iterable[str]) -> GpuStore:
        """Return a new store that shares these buffers, for reading by both.

        Raises
        ------
        KeyError : the buffer does not exist
        SpecError : it is part of a packed buffer
        """
        keys = list(keys)
        parts = [] if self.packed is None else [key for key in keys if key in self.packed.starts]
        if parts:
            raise SpecError(f"{parts[0]!r} is part of a packed buffer", hint="copy it with `put` and `get`")
        store = GpuStore(self._context)
        store._entries = {key: self._entries[key] for key in keys}
        for entry in store._entries.values():
            entry.stores += 1
        return store

    def drop(self, key: str) -> None:
        """Free a buffer that no other store has; no program may use it afterwards. Raises `KeyError`.

        A part of a packed buffer is freed with that buffer.
        """
        entry = self._entries.pop(key)
        if self.packed is not None and key in self.packed.starts:
            return
        entry.stores -= 1
        if not entry.stores:
            self._context.free(entry.buffer)

    def resident(self, array: Array) -> Any:
        """Return a buffer with a copy of a host array, which nobody changes; it is freed when the array is dropped.

        Raises
        ------
        DeviceError : the array exceeds the GPU
        """
        known = self._resident.get(id(array))
        if known is not None and known[0]() is array:
            return known[1]
        for key in [key for key, (of, _) in self._resident.items() if of() is None]:
            self._context.free(self._resident.pop(key)[1])
        buffer = self._context.upload(array, "samples")
        self._resident[id(array)] = weakref.ref(array), buffer
        return buffer

    def buffer(self, key: str) -> Any:
        """Return the buffer of `key`, or the packed buffer it is a part of. Raises `KeyError`."""
        return self._entries[key].buffer

    def place(self, key: str) -> BufferSlice:
        """Return where a tensor is: a buffer, or a part of the packed one. Raises `KeyError`."""
        entry = self._entries[key]
        return BufferSlice(entry.buffer, entry.start, entry.dtype.itemsize * prod(entry.shape))

    def check(self, tensor: Tensor) -> None:
        """Raise unless there is a buffer with the shape and type of a keyed tensor.

        Raises
        ------
        SpecError : the buffer does not exist
        ShapeError : it has another shape or type
        """
        entry = self._entries.get(tensor.key or "")
        if entry is None:
            raise SpecError(f"the store has no buffer {tensor.key!r}", hint="put its first value into the store")
        if entry.shape != tensor.shape or entry.dtype != np.dtype(tensor.dtype):
            raise ShapeError(
                f"{tensor.key}: the graph has {tensor.dtype} of shape {list(tensor.shape)}, "
                f"the store {entry.dtype} of shape {list(entry.shape)}"
            )

    def close(self) -> None:
        """Free every buffer."""
        for key in list(self._entries):
            self.drop(key)
        while self._resident:
            self._context.free(self._resident.popitem()[1][1])
