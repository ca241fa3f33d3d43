"""Persistent buffers on a GPU: parameters, optimiser state, recurrent state. They leave it only when asked for."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from volumetric._typing import Array, Shape
from volumetric.errors import ShapeError, SpecError
from volumetric.runtime.gpu.context import GpuContext
from volumetric.runtime.graph.ops import Tensor


@dataclass(slots=True)
class Held:
    """One buffer, and how many stores have it."""

    buffer: Any
    shape: Shape
    dtype: np.dtype[Any]
    stores: int = 1


class GpuStore:
    """Named buffers on one GPU, float32 or int32.

    Attributes
    ----------
    lock : held by whoever uses the buffers: programs of one store, and reads of it, take turns
    """

    def __init__(self, context: GpuContext) -> None:
        self.lock = threading.RLock()
        self._context = context
        self._held: dict[str, Held] = {}

    def put(self, key: str, value: Array) -> None:
        """Create a buffer, or overwrite it.

        Raises
        ------
        ShapeError : there is one of another shape or type
        DeviceError : it exceeds the GPU
        """
        value = np.ascontiguousarray(value, np.int32 if np.issubdtype(value.dtype, np.integer) else np.float32)
        held = self._held.get(key)
        if held is None:
            buffer = self._context.buffer(value.nbytes, key)
            held = self._held[key] = Held(buffer, value.shape, value.dtype)
        elif held.shape != value.shape or held.dtype != value.dtype:
            raise ShapeError(
                f"buffer {key!r} is {held.dtype} {list(held.shape)}, got {value.dtype} {list(value.shape)}"
            )
        if value.size:
            with self.lock:
                self._context.write(held.buffer, value)

    def get(self, key: str) -> Array:
        """Wait for the GPU and copy a buffer back. Raises `KeyError`."""
        held = self._held[key]
        if 0 in held.shape:
            return np.empty(held.shape, held.dtype)
        with self.lock:
            raw = self._context.read(held.buffer, held.dtype.itemsize * prod(held.shape))
        return raw.view(held.dtype).reshape(held.shape).copy()

    def keys(self) -> Iterable[str]:
        """Names of all buffers."""
        return self._held.keys()

    def share(self, keys: Iterable[str]) -> GpuStore:
        """Return a new store that has these buffers too, for both to read. Raises `KeyError`."""
        made = GpuStore(self._context)
        made._held = {key: self._held[key] for key in keys}
        for held in made._held.values():
            held.stores += 1
        return made

    def drop(self, key: str) -> None:
        """Free a buffer that no other store has; no program may use it any more. Raises `KeyError`."""
        held = self._held.pop(key)
        held.stores -= 1
        if not held.stores:
            self._context.free(held.buffer)

    def buffer(self, key: str) -> Any:
        """Return the buffer of `key`. Raises `KeyError`."""
        return self._held[key].buffer

    def check(self, tensor: Tensor) -> None:
        """Raise unless there is a buffer of the shape and type of a tensor with a key.

        Raises
        ------
        SpecError : there is none
        ShapeError : it has another shape or type
        """
        held = self._held.get(tensor.key or "")
        if held is None:
            raise SpecError(f"the store has no buffer {tensor.key!r}", hint="put its first value into the store")
        if held.shape != tensor.shape or held.dtype != np.dtype(tensor.dtype):
            raise ShapeError(
                f"{tensor.key}: the graph has {tensor.dtype} of shape {list(tensor.shape)}, "
                f"the store {held.dtype} of shape {list(held.shape)}"
            )

    def close(self) -> None:
        """Free every buffer."""
        for key in list(self._held):
            self.drop(key)
