"""GpuState: one sequence, and the pages that hold its keys and values."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from volumetric.kernels.gpu.attention import PAGE
from volumetric.kernels.gpu.dispatch import ceil_div
from volumetric.layers import StateSpec
from volumetric.runtime.gpu.pages import Holding, PagePool
from volumetric.runtime.state import check_trim
from volumetric.runtime.state_file import Held, as_numbers, save_state


class GpuState:
    """Position and pages of one sequence.

    Attributes
    ----------
    pool : of the executable that made it
    held : pages and page table
    """

    def __init__(self, pool: PagePool, specs: Mapping[str, StateSpec]) -> None:
        self.pool = pool
        self.held = Holding()
        self._specs = specs
        self._position = 0
        weakref.finalize(self, pool.returned.append, self.held).atexit = False

    @property
    def position(self) -> int:
        """Tokens held so far."""
        return self._position

    def advance(self, rows: int) -> None:
        """Count rows that a forward pass has appended."""
        self._position += rows

    def reset(self) -> None:
        """Forget everything, and give its room back."""
        self.trim(0)

    def trim(self, position: int) -> None:
        """Forget all tokens from `position` on, and give back the room that nothing is left in.

        Raises
        ------
        GenerationError : `position` is negative or beyond the end, or a fixed state cannot go back to it
        """
        check_trim(self._position, position, self._specs)
        with self.pool.lock:
            self._position = position
            keep = ceil_div(position, PAGE)
            self.pool.give(self.held.pages[keep:])
            del self.held.pages[keep:]

    def fork(self) -> GpuState:
        """Copy: both continue independently. They share all pages until one writes to the last of them."""
        twin = GpuState(self.pool, self._specs)
        with self.pool.lock:
            self.pool.share(self.held, twin.held, self._position)
            twin._position = self._position
        return twin

    def save(self) -> bytes:
        """Return the state as bytes, see `volumetric.runtime.state_file`."""
        with self.pool.lock:
            return save_state(self, self._specs)

    def read(self, key: str) -> NDArray[Any]:
        """Return the rows of the state `key`, ``[position, kv_heads, head_dim]``, or its value."""
        if self._specs[key].kind == "fixed":
            return self.pool.fixed.read(key, self.held.line, self._position)
        return self.pool.read(key, self.held, self._position)

    def fill(self, values: Mapping[str, Held], position: int) -> None:
        """Replace all states.

        Raises
        ------
        DeviceError : the GPU has no room for the rows
        """
        with self.pool.lock:
            self.reset()
            self.pool.reserve([(self.held, 0, position)])
            for key, value in values.items():
                if self._specs[key].kind == "fixed":
                    self.pool.fixed.write(key, self.held.line, position, as_numbers(value, self._specs[key].dtype))
                else:
                    self.pool.write(key, self.held, as_numbers(value, self.pool.dtype(key)))
            self._position = position
