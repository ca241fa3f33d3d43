"""How many rows of prompts a call takes beside sequences that decode, so that these do not wait too long."""

from __future__ import annotations

LEAST, MOST, STEP = 16, 512, 16
_FIRST = 64
_ALONE_SECONDS = 0.5
"""What a call may take that nobody waits for: those who come, and those who leave, wait for it."""
_FIRST_ALONE = 128
_WEIGHT = 0.3  # of the last call in the running mean


class Pace:
    """Rows by measured time: a mean of what a row cost in the last calls, more of it the later.

    Parameters
    ----------
    seconds : that a call should take at most
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._row: float | None = None

    def rows(self, beside: int) -> int:
        """Return the rows of prompts for a call beside `beside` rows of sequences that decode."""
        if self._row is None:
            return _FIRST
        rows = int(self._seconds / self._row) - beside
        return max(LEAST, min(MOST, rows // STEP * STEP))

    def alone(self) -> int:
        """Return the rows of prompts for a call beside nobody."""
        if self._row is None:
            return _FIRST_ALONE
        return max(_FIRST, min(MOST, int(max(_ALONE_SECONDS, self._seconds) / self._row) // STEP * STEP))

    def count(self, rows: int, seconds: float) -> None:
        """Take notice of a call with prompts in it, of so many rows in all."""
        if rows < LEAST or seconds <= 0:
            return  # the cost of a call, not of its rows
        each = seconds / rows
        self._row = each if self._row is None else self._row + _WEIGHT * (each - self._row)
