"""The state of a sequence on the reference device."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from volumetric.base._typing import Array
from volumetric.graph.ops import HELD, Tensor
from volumetric.layers import StateSpec
from volumetric.run.kv_value import KvValue, as_numbers, pad_rows_before
from volumetric.run.sequence_state import SequenceState


class ReferenceState(SequenceState):
    """Position, and the values of the declared states by key. Forks share the arrays, which are never modified."""

    def __init__(self, specs: Mapping[str, StateSpec], dtype: type[np.float32] | type[np.float64]) -> None:
        super().__init__(specs)
        self.values: dict[str, Array] = {}
        self._dtype = dtype

    def shrink_to_fit(self) -> None:
        """Free the rows after the present position."""
        self.values = {
            key: value if value.base is None or value.base.nbytes <= value.nbytes else value.copy()
            for key, value in self.values.items()
        }

    def buffers(self, tensors: Mapping[str, Tensor]) -> dict[str, Array]:
        """Return the state as buffers for the graph's tensors; at the start zeros, and no rows."""
        buffers: dict[str, Array] = {}
        for key, tensor in tensors.items():
            kind = np.int32 if tensor.dtype == "int32" else self._dtype
            shape = tuple(self.position if n == HELD else n for n in tensor.shape)
            value = self.values.get(key)
            buffers[key] = np.zeros(shape, kind) if value is None else value.reshape(shape)
        return buffers

    def append(self, rows: int, buffers: Mapping[str, Array]) -> None:
        """Store the buffers as they are after so many more rows."""
        self.position = self.position + rows
        for key, value in buffers.items():
            spec = self.specs[key]
            self.values[key] = value.reshape(spec.shape) if spec.kind == "fixed" else value

    def read(self, key: str) -> Array:
        return self.values[key]

    def _write(self, values: Mapping[str, KvValue], position: int) -> None:
        kinds = {"float32": self._dtype, "int32": np.int32}
        for key, value in values.items():
            spec = self.specs[key]
            stored = value if spec.kind == "fixed" else pad_rows_before(value, position)
            self.values[key] = as_numbers(stored, np.dtype(kinds[spec.dtype]))

    def _drop_rows(self, position: int) -> None:
        self.values = self._until(position)

    def _copy(self, position: int) -> ReferenceState:
        twin = ReferenceState(self.specs, self._dtype)
        twin.values = self._until(position)
        return twin

    def _until(self, position: int) -> dict[str, Array]:
        """Return the first rows, or all that are stored."""
        if 0 < position < self.position:
            return {key: value[:position] for key, value in self.values.items()}
        return dict(self.values) if position else {}
