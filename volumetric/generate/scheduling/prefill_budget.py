"""Costs of device calls, estimated from earlier calls: of prompt rows and of draft tokens.

`PrefillBudget` limits the prompt rows of a call, so that decoding sequences do not wait too long; `DraftCosts`
estimates the cost of a draft token.
"""

from __future__ import annotations

LEAST, MOST, STEP = 16, 512, 16
ENOUGH = 128
"""Rows at which a call is efficient: without decoding sequences, more prompt rows wait for the next call."""
_FIRST = 64
_ALONE_SECONDS = 0.5
"""Seconds of a call without decoding sequences: new and cancelled requests wait for its end."""
_FIRST_ALONE = 128
_WEIGHT = 0.3  # weight of the last call in the running means of `PrefillBudget`
_LEAST_SHARE = 0.25  # least cost of a prompt row, as a share of the mean cost of the rows of its call
_FIRST_PRICE, _EACH_PRICE, _LEAST_PRICE, _MOST_PRICE = 0.2, 0.02, 0.05, 0.95
"""Price of a draft token for one sequence, increase for each other sequence before any measurement, and bounds."""
_PRICE_WEIGHT = 0.1  # weight of the last call in the running means of `DraftCosts`
_FORGOTTEN = 0.002  # decay of a price after a call without drafts, because prices depend on the load


class PrefillBudget:
    """Limits prompt rows by measured time: running means of the fixed cost of a call, and of the cost of a prompt row.

    They are separate because decoding reads all weights for few rows: with a single cost per row, the rows of a call
    with few prompt rows would seem expensive, and the next call would have even fewer.

    Parameters
    ----------
    seconds : most seconds of a call; if decoding alone takes more than half of it, prompts still get half
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._call = 0.0
        self._row: float | None = None

    def rows(self) -> int:
        """Return the prompt rows for a call with decoding sequences."""
        if self._row is None:
            return _FIRST
        rows = int(max(self._seconds - self._call, self._seconds / 2) / self._row)
        return max(LEAST, min(MOST, rows // STEP * STEP))

    def alone(self) -> int:
        """Return the prompt rows for a call without decoding sequences."""
        if self._row is None:
            return _FIRST_ALONE
        return max(_FIRST, min(MOST, int(max(_ALONE_SECONDS, self._seconds) / self._row) // STEP * STEP))

    def enough(self) -> int:
        """Return the rows after which another prompt is left to the next call.

        All prompts of a call get their first tokens at its end. Until the rows cost as much as the fixed cost of a
        call, adding a prompt delays the others by less than a separate call would cost; beyond that, shorter calls are
        faster for nearly all of them, with hardly more work.
        """
        if self._row is None:
            return ENOUGH
        return max(_FIRST, min(MOST, int(self._call / self._row)))

    def decoded(self, seconds: float) -> None:
        """Record a call without prompts."""
        self._call += (_WEIGHT if self._call else 1.0) * (seconds - self._call)

    def count(self, rows: int, beside: int, seconds: float) -> None:
        """Record a call with `rows` prompt rows and `beside` other rows."""
        if rows < LEAST or seconds <= 0:
            return  # mostly the fixed cost of a call
        added = max(seconds - (self._call if beside else 0.0), _LEAST_SHARE * seconds * rows / (rows + beside))
        each = added / rows
        self._row = each if self._row is None else self._row + _WEIGHT * (each - self._row)


class DraftCosts:
    """Price of a draft token by number of sequences: the time it adds to a call, relative to a token's time without."""

    def __init__(self) -> None:
        self._plain: dict[int, float] = {}
        """Seconds of a call without drafts, by the magnitude of the number of sequences."""
        self._prices: dict[int, float] = {}

    def of(self, sequences: int) -> float:
        """Return the cost of a draft token, as a share of the time that an accepted one saves."""
        return self._prices.get(sequences.bit_length(), _first(sequences))

    def count(self, sequences: int, guessed: int, seconds: float) -> None:
        """Record a call: its sequences, their draft tokens, and its time."""
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
    """Price of a draft token before any measurement."""
    return min(_MOST_PRICE, _FIRST_PRICE + _EACH_PRICE * (sequences - 1))
