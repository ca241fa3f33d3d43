"""What sequences remember on the reference device."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from volumetric._typing import Array
from volumetric.graph.ops import HELD, Tensor
from volumetric.layers import StateSpec
from volumetric.runtime.held import Held, after_zeros, as_numbers, reach_of
from volumetric.runtime.state import check_trim, has_fixed
from volumetric.runtime.state_file import save_state


class ReferenceState:
    """Position and the values of the declared states, by their keys."""

    def __init__(self, specs: Mapping[str, StateSpec], dtype: type[np.float32] | type[np.float64]) -> None:
        self.position = 0
        self.values: dict[str, Array] = {}
        self._specs = specs
        self._dtype = dtype
        self._reach = 0

    @property
    def forgets(self) -> bool:
        """Whether there are places to which only a copy leads back, see `State.forgets`."""
        return has_fixed(self._specs)

    @property
    def reach(self) -> int:
        """First position beyond 0 to which `trim` goes back."""
        return self.position if self.forgets else self._reach

    def reset(self) -> None:
        """Forget everything."""
        self.position = self._reach = 0
        self.values = {}

    def trim(self, position: int) -> None:
        """Forget all rows from `position` on; see `State.trim`."""
        check_trim(self.position, position, self._specs, self.reach)
        if position == 0:
            self.reset()
        elif position < self.position:
            self.position = position
            self.values = {key: value[:position] for key, value in self.values.items()}

    def fork(self, position: int | None = None) -> ReferenceState:
        """Copy, see `State.fork`. Arrays are never written to, so they are shared."""
        twin = ReferenceState(self._specs, self._dtype)
        twin.position, twin.values, twin._reach = self.position, dict(self.values), self._reach
        if position is not None:
            twin.trim(position)
        return twin

    def shrink_to_fit(self) -> None:
        """Let go of the rows behind those that were cut off."""
        self.values = {
            key: value if value.base is None or value.base.nbytes <= value.nbytes else value.copy()
            for key, value in self.values.items()
        }

    def buffers(self, tensors: Mapping[str, Tensor]) -> dict[str, Array]:
        """Return what is held as the buffers that the tensors of a graph read; zeros, and no rows, at the start."""
        found: dict[str, Array] = {}
        for key, tensor in tensors.items():
            kind = np.int32 if tensor.dtype == "int32" else self._dtype
            shape = tuple(self.position if n == HELD else n for n in tensor.shape)
            held = self.values.get(key)
            found[key] = np.zeros(shape, kind) if held is None else held.reshape(shape)
        return found

    def append(self, rows: int, buffers: Mapping[str, Array]) -> None:
        """Take over the buffers as so many rows have left them."""
        self.position += rows
        for key, value in buffers.items():
            spec = self._specs[key]
            self.values[key] = value.reshape(spec.shape) if spec.kind == "fixed" else value

    def save(self) -> bytes:
        """Return the state as bytes, see `volumetric.runtime.state_file`."""
        return save_state(self, self._specs)

    def read(self, key: str) -> Array:
        """Return what the state `key` holds."""
        return self.values[key]

    def fill(self, values: Mapping[str, Held], position: int) -> None:
        """Replace all states."""
        kinds = {"float32": self._dtype, "int32": np.int32}
        for key, value in values.items():
            spec = self._specs[key]
            held = value if spec.kind == "fixed" else after_zeros(value, position)
            self.values[key] = as_numbers(held, np.dtype(kinds[spec.dtype]))
        self.position = position
        self._reach = reach_of(values, self._specs, position)
