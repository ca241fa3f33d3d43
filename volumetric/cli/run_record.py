"""What ``run --record`` keeps of a stream: how strong the output of every layer is after each tick."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from volumetric._typing import Array, F32Array
from volumetric.runtime.streams import ClockedStream
from volumetric.runtime.streams.chunks import Chunk

MOST: Final = 1_000_000
"""Values of a film, layers times ticks; more would make a page that no browser likes."""


class Recorder:
    """Runs a stream tick by tick, as long as there is room.

    Attributes
    ----------
    ticks : how many have been run; those after the room was full are not recorded
    """

    def __init__(self, stream: ClockedStream) -> None:
        self._stream = stream
        self._room = max(1, MOST // len(stream.clocked.network.layers))
        self._frames: list[F32Array] = []
        self.ticks = 0

    @property
    def values(self) -> F32Array:
        """What was recorded, ``[ticks, layers]``."""
        return np.array(self._frames, np.float32).reshape(len(self._frames), len(self._stream.clocked.network.layers))

    def advance(self, chunk: Chunk, *, per_row: int = 1) -> Array | dict[str, Array]:
        """Do what `ClockedStream.advance` does."""
        self.ticks += chunk.count * per_row
        if len(self._frames) >= self._room or not chunk.count:
            return self._stream.advance(chunk, per_row=per_row)
        made: list[Array | Mapping[str, Array]] = []
        for row in range(chunk.count):
            for late in range(per_row):
                made.append(self._stream.advance(Chunk(x={}, count=1) if late else _only(chunk, row)))
                if len(self._frames) < self._room:
                    self._frames.append(self._stream.activity())
        if isinstance(made[0], Mapping):
            return {name: np.concatenate([y[name] for y in made if isinstance(y, Mapping)], 1) for name in made[0]}
        return np.concatenate([y for y in made if not isinstance(y, Mapping)], 1)


def _only(chunk: Chunk, row: int) -> Chunk:
    at = slice(row, row + 1)
    resets = None if chunk.resets is None else chunk.resets[:, at]
    return Chunk(x={name: x[:, at] for name, x in chunk.x.items()}, count=1, resets=resets)
