"""Graphs on the reference device: runs the interpreter through the interface of all devices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import ShapeError
from volumetric.dtypes import Scheme
from volumetric.graph.graph_device import Rounds
from volumetric.graph.interpret import Float, Interpreter, check_buffer
from volumetric.graph.ops import Graph, ProductType


class NumpyStore:
    """Buffers in host memory; floats are stored in the device's dtype."""

    def __init__(self, dtype: Float = np.float32) -> None:
        self.dtype = dtype
        self.buffers: dict[str, Array] = {}

    def write(self, key: str, value: Array) -> None:
        """Copy `value` into a new buffer, or into an existing one of the same shape."""
        value = np.array(value, np.int32 if np.issubdtype(value.dtype, np.integer) else self.dtype)
        old = self.buffers.get(key, value)
        if old.shape != value.shape or old.dtype != value.dtype:
            raise ShapeError(f"buffer {key!r} is {old.dtype} {list(old.shape)}, got {value.dtype} {list(value.shape)}")
        self.buffers[key] = value

    def write_together(self, values: Mapping[str, Array]) -> None:
        """Put several buffers."""
        for key, value in values.items():
            self.write(key, value)

    def get(self, key: str) -> Array:
        """Return a copy of a buffer."""
        return self.buffers[key].copy()

    def host_view(self, key: str) -> Array | None:
        """Return a buffer as it is."""
        return self.buffers[key]

    def keys(self) -> Iterable[str]:
        """Names of all buffers."""
        return self.buffers.keys()

    def share(self, keys: Iterable[str]) -> NumpyStore:
        """Return a new store that shares these buffers, read-only for both. Raises `KeyError`."""
        store = NumpyStore(self.dtype)
        store.buffers = {key: self.buffers[key] for key in keys}
        return store

    def drop(self, key: str) -> None:
        """Drop a buffer."""
        del self.buffers[key]


class NumpyProgram:
    """A graph bound to a store."""

    def __init__(self, graph: Graph, store: NumpyStore) -> None:
        self._interpreter = Interpreter(graph, store.dtype)
        self._store = store

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Interpret the graph."""
        return self._interpreter.run(inputs, self._store.buffers)


class NumpyGraphs:
    """The reference device for graphs, in float32 or (to check gradients) float64."""

    parted = unrolled = False
    products: tuple[ProductType, ...] = ("float32", "float16")

    def __init__(self, dtype: Float = np.float32) -> None:
        self.dtype = dtype

    @staticmethod
    def rounding_of(scheme: Scheme) -> Rounds | None:
        """Return how weights are rounded to `scheme` for a forward pass."""
        return "codec"

    def store(self) -> NumpyStore:
        """Return an empty store."""
        return NumpyStore(self.dtype)

    def compile(self, graph: Graph, store: NumpyStore) -> NumpyProgram:
        """Check that every buffer exists, and bind `graph` to `store`."""
        for tensor in graph.tensors_by_key.values():
            check_buffer(tensor, store.buffers)
        return NumpyProgram(graph, store)
