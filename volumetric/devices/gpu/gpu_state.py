"""GpuState: one sequence, and the pages that hold its keys and values."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from volumetric.devices.gpu.page_pool import PagePool
from volumetric.layers import StateSpec
from volumetric.run.kv_value import KvValue, as_numbers
from volumetric.run.sequence_state import SequenceState

if TYPE_CHECKING:
    from volumetric.devices.gpu.page_pool import SequencePages


class GpuState(SequenceState):
    """Position and pages of one sequence. Forks share all pages until one writes to the last of them.

    Attributes
    ----------
    pool : pool of the executable that created it
    pages : pages and page table
    """

    def __init__(self, pool: PagePool, specs: Mapping[str, StateSpec]) -> None:
        super().__init__(specs)
        self.pool = pool
        self.pages: SequencePages = pool.new_sequence()
        weakref.finalize(self, pool.returned.append, self.pages).atexit = False

    def advance(self, rows: int) -> None:
        """Count the rows appended by a forward pass; free pages now outside of windows."""
        self.position = self.position + rows
        if self.pool.has_windows:
            self.pool.release_before(self.pages, self.position)

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
            return self.pool.fixed.read(key, self.pages.line, self.position)
        return self.pool.read(key, self.pages, self.position)

    def _write(self, values: Mapping[str, KvValue], position: int) -> None:
        """Set the states; raises `DeviceError` if the GPU has no room for the rows."""
        with self.pool.lock:
            self.reset()
            self.pool.reserve([(self.pages, position, position)])
            for key, value in values.items():
                if self.specs[key].kind == "fixed":
                    self.pool.fixed.write(key, self.pages.line, position, as_numbers(value, self.specs[key].dtype))
                else:
                    self.pool.write(key, self.pages, as_numbers(value, self.pool.dtype(key)), position)

    def _drop_rows(self, position: int) -> None:
        self.pool.trim(self.pages, position)

    def _copy(self, position: int) -> GpuState:
        twin = GpuState(self.pool, self.specs)
        with self.pool.lock:
            self.pool.share(self.pages, twin.pages, self.position)
            if position < self.position:
                self.pool.trim(twin.pages, position)
        return twin

    @property
    def _frees_windows(self) -> bool:
        return self.pool.has_windows

    def _oldest_in_memory(self) -> int:
        return self.pool.oldest_restorable(self.pages)
