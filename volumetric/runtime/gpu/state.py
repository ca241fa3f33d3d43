"""GpuState: the KV caches of one sequence."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

from volumetric.kernels.gpu.attention import AttentionShape
from volumetric.runtime.gpu.context import GpuContext
from volumetric.runtime.state import check_trim


class GpuState:
    """Position and caches of one sequence.

    Attributes
    ----------
    caches : key of the keys → (keys, values) buffers, ``[kv_heads, context, head_dim padded]``
    replays : recordings bound to these caches, made by the executable on first use
    """

    def __init__(self, context: GpuContext, shapes: Mapping[str, AttentionShape]) -> None:
        self._context = context
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
        twin = GpuState(self._context, self._shapes)
        twin._position = self._position
        pairs = [pair for key, mine in self.caches.items() for pair in zip(mine, twin.caches[key], strict=True)]
        self._context.copy_whole(pairs)
        return twin


def _free(context: GpuContext, caches: tuple[tuple[Any, Any], ...]) -> None:
    for keys, values in caches:
        context.free(keys)
        context.free(values)
