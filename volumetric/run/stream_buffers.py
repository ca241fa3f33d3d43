"""States of streams as buffers in the store of a device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass

import numpy as np

from volumetric.base._typing import Array, Shape
from volumetric.graph.graph_device import TensorStore
from volumetric.graph.ops import TensorType


@dataclass(frozen=True, slots=True)
class StreamBufferSpec:
    """The layout of a state in a buffer.

    Attributes
    ----------
    row : shape of one coordinate of one stream
    count : number of coordinates
    separate_axes : whether coordinates and streams are two axes, as in planes, or one axis, with coordinates outermost
    start : initial value of all elements
    """

    row: Shape
    count: int = 1
    separate_axes: bool = False
    dtype: TensorType = "float32"
    start: float = 0.0

    def shape(self, batch: int) -> Shape:
        """Return the shape of the buffer."""
        return (self.count, batch, *self.row) if self.separate_axes else (self.count * batch, *self.row)

    def batch_of(self, shape: Shape) -> int:
        """Return the number of streams for an array of this shape; 0: the shape does not match."""
        if self.separate_axes:
            return shape[1] if len(shape) > 1 else 0
        return shape[0] // self.count if shape else 0

    def initial_value(self, batch: int) -> Array:
        """Return the initial values of streams."""
        return np.full(self.shape(batch), self.start, np.int32 if self.dtype == "int32" else np.float32)

    def by_stream(self, value: Array, batch: int) -> Array:
        """View an array as ``[count, batch, …]``."""
        return value.reshape(self.count, batch, *self.row)


class StreamBuffers:
    """The states of several streams in buffers of a store.

    Parameters
    ----------
    store : has the buffers after `begin`
    buffers : key → layout
    batch : number of streams
    name : prefix of the names of the buffers
    """

    def __init__(self, store: TensorStore, buffers: Mapping[str, StreamBufferSpec], batch: int, name: str = "") -> None:
        self.store: TensorStore = store
        self.buffers: Mapping[str, StreamBufferSpec] = buffers
        self.batch: int = batch
        self.places: dict[str, str] = {key: f"{name}/{batch}/{key}" if name else key for key in buffers}

    def begin(self) -> None:
        """Reset all streams."""
        self.write(self.initial_values())

    def initial_values(self) -> dict[str, Array]:
        """Return the initial values of all buffers."""
        return {key: buffer.initial_value(self.batch) for key, buffer in self.buffers.items()}

    def copy_to(self, store: TensorStore, *, together: bool = False) -> StreamBuffers:
        """Return a copy in another store."""
        buffers = copy(self)
        buffers.store = store
        buffers.write(self.values(), together=together)
        return buffers

    def get(self, key: str) -> Array:
        """Return a copy of a buffer, ``[count, batch, …]``."""
        return self.buffers[key].by_stream(self.store.get(self.places[key]), self.batch)

    def values(self) -> dict[str, Array]:
        """Return copies of all buffers."""
        return {key: self.store.get(place) for key, place in self.places.items()}

    def write(self, values: Mapping[str, Array], *, together: bool = False) -> None:
        """Replace buffers; pass `together` for new ones that programs only read and assign whole."""
        placed = {self.places[key]: value for key, value in values.items()}
        if together:
            self.store.write_together(placed)
        else:
            for place, value in placed.items():
                self.store.write(place, value)

    def reset(self, streams: Iterable[int]) -> None:
        """Reset some streams."""
        chosen = list(streams)
        for key, buffer in self.buffers.items():
            value = self.store.get(self.places[key])
            buffer.by_stream(value, self.batch)[:, chosen] = buffer.start
            self.store.write(self.places[key], value)
