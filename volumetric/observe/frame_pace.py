"""When a running stream shows a frame: a limited number of times a second."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Final

from volumetric.base.errors import SpecError

_ROWS: Final = 32
_LONGEST: Final = 0.25


class FramePace:
    """Cuts rows into calls, so that a frame can be taken about `rate` times a second.

    A call has as many rows as take a period at the speed of the last one, or somewhat more: powers of two, so that few
    programs serve all calls. Calls have a cost of their own, for a fabric that of one or two rows. So there is one call
    for a frame, and it has 32 rows at least, if they take less than a quarter of a second.

    Parameters
    ----------
    rate : maximum number of frames a second
    clock : returns seconds

    Raises
    ------
    SpecError : `rate` is not above 0
    """

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        if not rate > 0:
            raise SpecError(f"a rate must be above 0 frames a second, got {rate}")
        self._period, self._clock = 1 / rate, clock
        self._next = clock()
        self._expected = False  # a frame is due after the present call, if only almost
        self._per_row = 0.0  # seconds of a row in the last call; 0: unknown

    @property
    def due(self) -> bool:
        """Whether a frame is due now, or is expected to be after the present call."""
        return self._expected or self._clock() >= self._next

    def skip(self) -> None:
        """Note that a frame was taken: the next one is due a period later."""
        self._next = max(self._next + self._period, self._clock())
        self._expected = False

    def calls(self, count: int, *, cut: bool = True) -> Iterator[tuple[int, int, bool]]:
        """Yield for each call its first row, the one after its last, and whether a frame is expected to be due then.

        The time between one and the next is taken as that of the call.

        Parameters
        ----------
        cut : False: one call has all rows
        """
        at = 0
        while at < count or not at:
            began = self._clock()
            rows = self._rows(self._next - began, count - at) if cut else count
            self._expected = began + rows * self._per_row >= self._next - self._per_row / 2
            yield at, at + rows, self._expected
            self._expected = False
            self._per_row = (self._clock() - began) / max(1, rows)
            at += rows
            if not rows:
                return

    def _rows(self, seconds: float, most: int) -> int:
        """Return the rows of a call when a frame is due in some seconds."""
        if not self._per_row:
            return min(1, most)
        rows = max(seconds if seconds > 0 else self._period, min(_ROWS * self._per_row, _LONGEST)) / self._per_row
        return most if rows >= most else min(most, 1 << math.ceil(math.log2(max(1.0, rows))))
