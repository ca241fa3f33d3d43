"""Keeps rows that a stream reads, for what needs them again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from volumetric.base._typing import Array
from volumetric.run.streams.stream_chunks import StreamChunk

MOST: Final = 1 << 24
"""Maximum number of values that are kept."""


class RowLog:
    """Rows of chunks, as far as they fit."""

    def __init__(self) -> None:
        self._parts: dict[str, list[Array]] = {}
        self._size = 0

    def logged(self, chunks: Iterator[StreamChunk]) -> Iterator[StreamChunk]:
        """Yield the chunks and keep their rows, the first ones up to `MOST` values."""
        for chunk in chunks:
            arrays = {name: np.asarray(x) for name, x in chunk.x.items()}
            self._size += sum(x.size for x in arrays.values())
            if self._size <= MOST:
                for name, x in arrays.items():
                    self._parts.setdefault(name, []).append(x)
            yield chunk

    def arrays(self) -> dict[str, Array] | None:
        """Return the rows by input, ``[B, T, …]``; None if there are none."""
        return {name: np.concatenate(parts, 1) for name, parts in self._parts.items()} or None

    def of_stream(self, row: int) -> dict[str, Array] | None:
        """Return the rows of one stream by input, ``[1, T, …]``; None if there are none."""
        arrays = self.arrays()
        return None if arrays is None else {name: x[row : row + 1] for name, x in arrays.items()}
