"""GpuState: the KV caches of one sequence."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volumetric.kernels.gpu.attention import AttentionShape
from volumetric.runtime.gpu.context import GpuContext
from volumetric.runtime.plan import Plan
from volumetric.runtime.state import check_trim
from volumetric.runtime.state_file import Held, as_numbers, save_state


class GpuState:
    """Position and caches of one sequence.

    Attributes
    ----------
    caches : key of the keys → (keys, values) buffers, ``[kv_heads, context, head_dim padded]``
    replays : recordings bound to these caches, made by the executable on first use
    """

    def __init__(self, context: GpuContext, plan: Plan, shapes: Mapping[str, AttentionShape]) -> None:
        self._context = context
        self._plan = plan
        self._shapes = shapes
        self._position = 0
        self.caches: dict[str, tuple[Any, Any]] = {
            key: (
                context.buffer(shape.cache_bytes, f"keys of {key.removesuffix('/k')}"),
                context.buffer(shape.cache_bytes, "values"),
            )
            for key, shape in shapes.items()
        }
        self.replays: dict[object, Any] = {}
        # Caches are the largest buffers after the weights: they go with the state, not at some later collection.
        weakref.finalize(self, _free, context, tuple(self.caches.values())).atexit = False

    @property
    def position(self) -> int:
        """Tokens held so far."""
        return self._position

    def advance(self, rows: int) -> None:
        """Count rows that a forward pass has appended."""
        self._position += rows

    def reset(self) -> None:
        """Forget everything. The caches keep their memory; what lies beyond the position is never read."""
        self._position = 0

    def trim(self, position: int) -> None:
        """Forget all tokens from `position` on.

        Raises
        ------
        GenerationError : `position` is negative or beyond the end
        """
        check_trim(self._position, position)
        self._position = position

    def fork(self) -> GpuState:
        """Copy: both continue independently."""
        twin = GpuState(self._context, self._plan, self._shapes)
        twin._position = self._position
        pairs = [pair for key, mine in self.caches.items() for pair in zip(mine, twin.caches[key], strict=True)]
        self._context.copy_whole(pairs)
        return twin

    def save(self) -> bytes:
        """Return the state as bytes, see `volumetric.runtime.state_file`."""
        return save_state(self, self._plan.states)

    def read(self, key: str) -> NDArray[Any]:
        """Return the rows of the state `key`, ``[position, kv_heads, head_dim]``."""
        rows = np.empty((self._position, *self._plan.states[key].shape), self._dtype(key))
        for head, (buffer, offset) in enumerate(self._heads(key)):
            padded = self._shape(key).padded
            data = self._context.read(buffer, self._position * padded * rows.itemsize, offset)
            rows[:, head] = data.view(rows.dtype).reshape(self._position, padded)[:, : rows.shape[-1]]
        return rows

    def fill(self, values: Mapping[str, Held], position: int) -> None:
        """Replace all states."""
        for key, value in values.items():
            numbers = as_numbers(value, self._dtype(key))
            wide = np.zeros((*numbers.shape[:-1], self._shape(key).padded), numbers.dtype)
            wide[..., : numbers.shape[-1]] = numbers
            for head, (buffer, offset) in enumerate(self._heads(key)):
                self._context.write(buffer, wide[:, head], offset)
        self._position = position

    def _heads(self, key: str) -> Iterator[tuple[Any, int]]:
        """Yield the buffer of a state, and where each head begins in it."""
        pair = next(tuple(step.states.values()) for step in self._plan.steps if key in step.states.values())
        shape = self._shapes[pair[0]]
        for head in range(shape.kv_heads):
            yield self.caches[pair[0]][pair.index(key)], head * shape.cache_bytes // shape.kv_heads

    def _shape(self, key: str) -> AttentionShape:
        return next(self._shapes[s.states["k"]] for s in self._plan.steps if key in s.states.values())

    def _dtype(self, key: str) -> np.dtype:
        return np.dtype(np.float16 if self._shape(key).half else np.float32)


def _free(context: GpuContext, caches: tuple[tuple[Any, Any], ...]) -> None:
    for keys, values in caches:
        context.free(keys)
        context.free(values)
