"""The random numbers of one generation, with look-ahead."""

from __future__ import annotations

from collections import deque

from volumetric.base import rng

_AT_ONCE = 64


class RngStream:
    """Numbers in [0, 1) of 53 bits, one for each draw.

    A device that draws tokens itself gets them in advance; unused ones are returned again.

    Parameters
    ----------
    seed : seed of the stream
    """

    def __init__(self, seed: int) -> None:
        self._generator = rng.generator(seed)
        self._numbers: deque[float] = deque()

    def take(self) -> float:
        """Return the next number, and advance."""
        if not self._numbers:
            self._more(_AT_ONCE)
        return self._numbers.popleft()

    def ahead(self, count: int) -> list[float]:
        """Return the next numbers without advancing."""
        if len(self._numbers) < count:
            self._more(count - len(self._numbers))
        return [self._numbers[i] for i in range(count)]

    def _more(self, count: int) -> None:
        self._numbers.extend(self._generator.random(count).tolist())
