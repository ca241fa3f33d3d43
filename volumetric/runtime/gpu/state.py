"""GpuState: one sequence, and the pages that hold its keys and values."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from volumetric.layers import StateSpec
from volumetric.runtime.gpu.pages import PagePool
from volumetric.runtime.held import Held, as_numbers, reach_of
from volumetric.runtime.state import check_trim, has_fixed
from volumetric.runtime.state_file import save_state


class GpuState:
    """Position and pages of one sequence.

    Attributes
    ----------
    pool : of the executable that made it
    held : pages and page table
    """

    def __init__(self, pool: PagePool, specs: Mapping[str, StateSpec]) -> None:
        self.pool = pool
        self.held = pool.holding()
        self._specs = specs
        self._position = 0
        self._reach = 0
        weakref.finalize(self, pool.returned.append, self.held).atexit = False

    @property
    def position(self) -> int:
        """Tokens held so far."""
        return self._position

    @property
    def forgets(self) -> bool:
        """Whether there are places to which only a copy leads back, see `State.forgets`."""
        return self.pool.forgets or has_fixed(self._specs)

    @property
    def reach(self) -> int:
        """First position beyond 0 to which `trim` goes back."""
        return self._position if has_fixed(self._specs) else max(self._reach, self.pool.reach(self.held))

    def advance(self, rows: int) -> None:
        """Count rows that a forward pass has appended; what lies behind windows now is given back."""
        self._position += rows
        if self.pool.forgets:
            self.pool.forget(self.held, self._position)

    def reset(self) -> None:
        """Forget everything, and give its room back."""
        self.trim(0)

    def trim(self, position: int) -> None:
        """Forget all tokens from `position` on, and give back the room that nothing is left in.

        Raises
        ------
        GenerationError : `position` is negative or beyond the end, or a state cannot go back to it
        """
        check_trim(self._position, position, self._specs, self.reach)
        with self.pool.lock:
            self._position = position
            self._reach = self._reach if position else 0
            self.pool.trim(self.held, position)

    def fork(self, position: int | None = None) -> GpuState:
        """Copy, see `State.fork`. Both share all pages until one writes to the last of them."""
        twin = GpuState(self.pool, self._specs)
        with self.pool.lock:
            self.pool.share(self.held, twin.held, self._position)
            twin._position, twin._reach = self._position, self._reach
            if position is not None:
                twin.trim(position)
        return twin

    def shrink_to_fit(self) -> None:
        """Nothing: a state has the pages that it needs."""

    def save(self) -> bytes:
        """Return the state as bytes, see `volumetric.runtime.state_file`."""
        with self.pool.lock:
            return save_state(self, self._specs)

    def read(self, key: str) -> NDArray[Any]:
        """Return the last rows of the state `key` that are held, ``[…, kv_heads, head_dim]``, or its value."""
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
            self.pool.reserve([(self.held, position, position)])
            for key, value in values.items():
                if self._specs[key].kind == "fixed":
                    self.pool.fixed.write(key, self.held.line, position, as_numbers(value, self._specs[key].dtype))
                else:
                    self.pool.write(key, self.held, as_numbers(value, self.pool.dtype(key)), position)
            self._position = position
            self._reach = reach_of(values, self._specs, position)
