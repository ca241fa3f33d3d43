"""Persistent buffers of graphs in host memory, at addresses that do not change."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from volumetric._typing import Array
from volumetric.errors import ShapeError
from volumetric.runtime.cpu.arena import aligned_zeros


class CpuStore:
    """Named float32 and int32 arrays, aligned to 64 bytes."""

    def __init__(self) -> None:
        self.buffers: dict[str, Array] = {}

    def put(self, key: str, value: Array) -> None:
        """Copy `value` into a new buffer, or into an old one of the same shape and type."""
        value = np.asarray(value)
        kind = np.int32 if np.issubdtype(value.dtype, np.integer) else np.float32
        if key not in self.buffers:
            self.buffers[key] = aligned_array(value.shape, kind)
        old = self.buffers[key]
        if old.shape != value.shape or old.dtype != kind:
            raise ShapeError(f"buffer {key!r} is {old.dtype} {list(old.shape)}, got {value.dtype} {list(value.shape)}")
        old[...] = value

    def get(self, key: str) -> Array:
        """Copy a buffer."""
        return self.buffers[key].copy()

    def keys(self) -> Iterable[str]:
        """Names of all buffers."""
        return self.buffers.keys()

    def drop(self, key: str) -> None:
        """Forget a buffer; programs that were bound to it keep its memory alive."""
        del self.buffers[key]


def aligned_array(shape: tuple[int, ...], kind: type[np.generic]) -> Array:
    """Zeros whose first element lies at a multiple of 64 bytes."""
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(kind).itemsize
    return aligned_zeros(max(size, 1))[:size].view(kind).reshape(shape)
