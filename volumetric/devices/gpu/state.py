"""GpuState: one sequence, and the pages that hold its keys and values."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from volumetric.devices.gpu.pages import PagePool
from volumetric.layers import StateSpec
from volumetric.run.held import Held, as_numbers
from volumetric.run.state import SequenceState


class GpuState(SequenceState):
    """Position and pages of one sequence. Forks share all pages until one writes to the last of them.

    Attributes
    ----------
    pool : pool of the executable that created it
    held : pages and page table
    """

    def __init__(self, pool: PagePool, specs: Mapping[str, StateSpec]) -> None:
        super().__init__(specs)
        self.pool = pool
        self.held = pool.holding()
        weakref.finalize(self, pool.returned.append, self.held).atexit = False

    def advance(self, rows: int) -> None:
        """Count the rows appended by a forward pass; free pages now outside of windows."""
        self.position += rows
        if self.pool.forgets:
            self.pool.forget(self.held, self.position)

    def trim(self, position: int) -> None:
        """Drop all tokens from `position` on, and free unused pages; see `State.trim`."""
        with self.pool.lock:
            super().trim(position)

    def shrink_to_fit(self) -> None:
        """Does nothing: a state has only the pages that it needs."""

    def save(self) -> bytes:
        """Return the state as bytes; calls cannot change the pool meanwhile."""
        with self.pool.lock:
            return super().save()

    def read(self, key: str) -> NDArray[Any]:
        """Return the values of one state: a fixed one, or the last rows ``[rows, kv_heads, head_dim]``."""
        if self.specs[key].kind == "fixed":
            return self.pool.fixed.read(key, self.held.line, self.position)
        return self.pool.read(key, self.held, self.position)

    def _write(self, values: Mapping[str, Held], position: int) -> None:
        """Set the states; raises `DeviceError` if the GPU has no room for the rows."""
        with self.pool.lock:
            self.reset()
            self.pool.reserve([(self.held, position, position)])
            for key, value in values.items():
                if self.specs[key].kind == "fixed":
                    self.pool.fixed.write(key, self.held.line, position, as_numbers(value, self.specs[key].dtype))
                else:
                    self.pool.write(key, self.held, as_numbers(value, self.pool.dtype(key)), position)

    def _cut(self, position: int) -> None:
        self.pool.trim(self.held, position)

    def _copy(self, position: int) -> GpuState:
        twin = GpuState(self.pool, self.specs)
        with self.pool.lock:
            self.pool.share(self.held, twin.held, self.position)
            if position < self.position:
                self.pool.trim(twin.held, position)
        return twin

    @property
    def _windowed(self) -> bool:
        return self.pool.forgets

    def _reach_of_memory(self) -> int:
        return self.pool.reach(self.held)
