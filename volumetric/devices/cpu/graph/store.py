"""Persistent buffers of graphs in host memory, at fixed addresses."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import ShapeError
from volumetric.devices.cpu.arena import CallScratch, aligned_array


class CpuStore:
    """Named float32 and int32 arrays, aligned to 64 bytes.

    Attributes
    ----------
    lock : held while the buffers are used: programs of one store, and reads of it, are serialised
    scratch : of its programs
    """

    def __init__(self) -> None:
        self.lock: threading.RLock = threading.RLock()
        self.scratch: CallScratch = CallScratch()
        self.buffers: dict[str, Array] = {}

    def write(self, key: str, value: Array) -> None:
        """Copy `value` into a new buffer, or into an old one of the same shape and type."""
        value = np.asarray(value)
        kind = np.int32 if np.issubdtype(value.dtype, np.integer) else np.float32
        if key not in self.buffers:
            self.buffers[key] = aligned_array(value.shape, kind)
        old = self.buffers[key]
        if old.shape != value.shape or old.dtype != kind:
            raise ShapeError(f"buffer {key!r} is {old.dtype} {list(old.shape)}, got {value.dtype} {list(value.shape)}")
        with self.lock:
            old[...] = value

    def write_together(self, values: Mapping[str, Array]) -> None:
        """Put several."""
        for key, value in values.items():
            self.write(key, value)

    def get(self, key: str) -> Array:
        """Copy a buffer."""
        with self.lock:
            return self.buffers[key].copy()

    def host_view(self, key: str) -> Array | None:
        """Return a buffer without copying."""
        return self.buffers[key]

    def keys(self) -> Iterable[str]:
        """Names of all buffers."""
        return self.buffers.keys()

    def share(self, keys: Iterable[str]) -> CpuStore:
        """Return a new store that shares these buffers, for reading by both. Raises `KeyError`."""
        store = CpuStore()
        store.buffers = {key: self.buffers[key] for key in keys}
        return store

    def drop(self, key: str) -> None:
        """Forget a buffer; programs that were bound to it keep its memory alive."""
        del self.buffers[key]
