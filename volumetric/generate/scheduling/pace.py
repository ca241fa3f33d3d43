"""What calls of the device cost, by the time of those before: for rows of prompts beside sequences, and for guesses.

`Pace` says how many rows of prompts a call takes, so that sequences that decode do not wait too long; `Prices` what a
proposed token costs.
"""

from __future__ import annotations

LEAST, MOST, STEP = 16, 512, 16
ENOUGH = 128
"""Rows from which on a call does its work well: of prompts that nobody decodes beside, more rows wait for the next."""
_FIRST = 64
_ALONE_SECONDS = 0.5
"""What a call may take that nobody waits for: those who come, and those who leave, wait for it."""
_FIRST_ALONE = 128
_WEIGHT = 0.3  # of the last call in the running means of `Pace`
_LEAST_SHARE = (
    0.25  # of a row of a prompt in the cost of a call, beside rows that cost nothing but the weights' reading
)
_FIRST_PRICE, _EACH_PRICE, _LEAST_PRICE, _MOST_PRICE = 0.2, 0.02, 0.05, 0.95
"""Of a guess beside nobody, what each other sequence adds to it as long as nothing was measured, and bounds."""
_PRICE_WEIGHT = 0.1  # of the last call in the running means of `Prices`
_FORGOTTEN = 0.002  # of a price after a call without guesses: other loads have other prices


class Pace:
    """Rows by measured time: running means of what a call costs anyway, and of what a row of a prompt adds to it.

    The two are told apart because decoding reads all weights for few rows: by what a call with few rows of prompts
    takes for each of its rows, such rows would seem dear, and the next call would have fewer.

    Parameters
    ----------
    seconds : that a call should take at most; where decoding alone takes more than half of it, prompts still get a half
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._call = 0.0
        self._row: float | None = None

    def rows(self) -> int:
        """Return the rows of prompts for a call beside sequences that decode."""
        if self._row is None:
            return _FIRST
        rows = int(max(self._seconds - self._call, self._seconds / 2) / self._row)
        return max(LEAST, min(MOST, rows // STEP * STEP))

    def alone(self) -> int:
        """Return the rows of prompts for a call beside nobody."""
        if self._row is None:
            return _FIRST_ALONE
        return max(_FIRST, min(MOST, int(max(_ALONE_SECONDS, self._seconds) / self._row) // STEP * STEP))

    def enough(self) -> int:
        """Return the rows after which another prompt is left to the next call.

        All prompts of a call have their first tokens at its end. Up to as many rows as cost what a call costs anyway,
        one more prompt makes the others wait for less than a call of its own would cost; beyond, the shorter calls are
        sooner for nearly all of them, and hardly more work.
        """
        if self._row is None:
            return ENOUGH
        return max(_FIRST, min(MOST, int(self._call / self._row)))

    def decoded(self, seconds: float) -> None:
        """Take notice of a call without prompts."""
        self._call += (_WEIGHT if self._call else 1.0) * (seconds - self._call)

    def count(self, rows: int, beside: int, seconds: float) -> None:
        """Take notice of a call with so many rows of prompts, beside so many of others."""
        if rows < LEAST or seconds <= 0:
            return  # the cost of a call, not of its rows
        added = max(seconds - (self._call if beside else 0.0), _LEAST_SHARE * seconds * rows / (rows + beside))
        each = added / rows
        self._row = each if self._row is None else self._row + _WEIGHT * (each - self._row)


class Prices:
    """What a guess costs by the number of sequences: the time that it adds to a call, of that of a token without."""

    def __init__(self) -> None:
        self._plain: dict[int, float] = {}
        """Seconds of a call without guesses, by the magnitude of the number of sequences."""
        self._prices: dict[int, float] = {}

    def of(self, sequences: int) -> float:
        """Return the cost of a guess as a share of what a right one saves."""
        return self._prices.get(sequences.bit_length(), _first(sequences))

    def count(self, sequences: int, guessed: int, seconds: float) -> None:
        """Take notice of a call: its sequences, their guesses, and the time of both."""
        size = sequences.bit_length()
        if not guessed:
            plain = self._plain.setdefault(size, seconds)
            self._plain[size] = plain + _PRICE_WEIGHT * (seconds - plain)
            if size in self._prices:
                self._prices[size] += _FORGOTTEN * (_first(sequences) - self._prices[size])
        elif (plain := self._plain.get(size)) is not None and plain > 0.0:
            measured = (seconds - plain) / guessed / (plain / sequences)
            price = self._prices.setdefault(size, self.of(sequences))
            measured = min(_MOST_PRICE, max(_LEAST_PRICE, measured))
            self._prices[size] = price + _PRICE_WEIGHT * (measured - price)


def _first(sequences: int) -> float:
    """Price of a guess as long as nothing was measured."""
    return min(_MOST_PRICE, _FIRST_PRICE + _EACH_PRICE * (sequences - 1))
